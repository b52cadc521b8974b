"""OpenStack's sushy-emulator in front of the lab's machines: a Redfish service that no one here wrote.

    driver.py CONFIG.json

sushy-tools serves HTTP, resources and errors; this file only adds a systems driver whose power is the lab's unix
socket (or anything that speaks its lines of JSON), TLS, and a ledger in the format of our own emulator. It prints
`ready PORT` when it listens, and ends when its standard input does, so that it cannot outlive its test.

CONFIG: {"listen": "127.0.0.1", "port": 0, "certificate": FILE, "key": FILE, "username": "u", "password_file": FILE,
         "socket": FILE, "ledger": FILE, "systems": [{"uuid": U, "name": N, "machine": M}, ...]}
"""

import json
import os
import socket
import ssl
import sys
import threading
import time

import bcrypt
import flask
from sushy_tools import error
from sushy_tools.emulator import main
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver
from werkzeug import serving

OPS = {"On": ["on"], "ForceOn": ["on"], "ForceOff": ["off"], "GracefulShutdown": ["off"],
       "ForceRestart": ["off", "on"], "GracefulRestart": ["off", "on"], "PowerCycle": ["off", "on"]}


class LabDriver(AbstractSystemsDriver):
    """Systems whose power is the lab's; everything else of them is the least that sushy-tools can show."""

    driver = "<coroner lab>"

    def __init__(self, path, systems):
        super().__init__()
        self._path = path
        self._systems = {system["uuid"]: system for system in systems}

    @property
    def systems(self):
        return list(self._systems)

    def _system(self, identity):
        if identity in self._systems:
            return self._systems[identity]
        for uuid, system in self._systems.items():
            if system["name"] == identity:
                raise error.AliasAccessError(uuid)
        raise error.NotFound(identity)

    def _call(self, identity, op):
        call = json.dumps({"op": op, "machine": self._system(identity)["machine"]})
        try:
            with socket.socket(socket.AF_UNIX) as lab:
                lab.settimeout(60)
                lab.connect(self._path)
                lab.sendall(call.encode() + b"\n")
                reply = json.loads(lab.makefile().readline())
        except (OSError, ValueError) as cause:
            raise error.FishyError(f"the machine cannot be asked: {cause}", code=503)
        if not reply.get("ok"):
            raise error.FishyError(f"the machine refuses: {reply.get('error')}", code=503)
        return reply["power"]

    def uuid(self, identity):
        return self._system(identity)["uuid"]

    def name(self, identity):
        return self._system(identity)["name"]

    def get_power_state(self, identity):
        return self._call(identity, "state")

    def set_power_state(self, identity, state):
        if state not in OPS:
            raise error.BadRequest(f"unknown ResetType {state}")
        for op in OPS[state]:
            self._call(identity, op)

    def get_boot_device(self, identity):
        return "Hdd"

    def set_boot_device(self, identity, boot_source):
        raise error.NotSupportedError("the lab's machines boot from nothing")

    def get_boot_mode(self, identity):
        return "Legacy"

    def get_total_memory(self, identity):
        return 1

    def get_total_cpus(self, identity):
        return 1

    def get_bios(self, identity):
        return {}

    def get_nics(self, identity):
        return []

    def get_processors(self, identity):
        return []


def note(path, systems):
    """Appends each request that passed the log-in to the ledger, before its answer leaves; t is its arrival."""
    ledger = open(path, "a", buffering=1)
    only = systems[0]["uuid"]

    def before():
        flask.g.arrived = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def after(response):
        request = flask.request
        named = [s["uuid"] for s in systems if f"/{s['uuid']}" in request.path or f"/{s['name']}/" in request.path]
        shown = None
        if response.is_json and request.method == "GET":
            body = response.get_json(silent=True)
            shown = body.get("PowerState") if isinstance(body, dict) else None
        line = {"t": flask.g.arrived, "bmc": "sushy", "address": request.host,
                "true_uuid": named[0] if named else only, "session": "basic", "method": request.method,
                "path": request.path, "body": request.get_json(silent=True), "status": response.status_code,
                "shown": shown}
        ledger.write(json.dumps(line) + "\n")
        return response

    return before, after


def until_told():
    """Ends the process when the test that holds the other end of standard input is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


def run(path):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    with open(config["password_file"], encoding="utf-8") as file:
        password = file.read().removesuffix("\n")
    # The least rounds that bcrypt takes: each request is checked, and this is a lab.
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    accounts = path + ".htpasswd"
    with open(os.open(accounts, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{config['username']}:{hashed}\n")

    app = main.app
    app.configure(extra_config={"SUSHY_EMULATOR_AUTH_FILE": accounts})
    driver = LabDriver(config["socket"], config["systems"])
    main.Application.systems = property(lambda _: driver)
    before, after = note(config["ledger"], config["systems"])
    app.before_request(before)
    app.after_request(after)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config["certificate"], config["key"])
    server = serving.make_server(config["listen"], config["port"], app, threaded=True, ssl_context=context)
    threading.Thread(target=until_told, daemon=True).start()
    print("ready", server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    run(sys.argv[1])
