# shellcheck shell=bash
# Certificates and kubeconfigs of the lab's control plane. To be sourced after
# say.sh; needs openssl.
#
# The caller sets $pki and $kubeconfigs, the folders for them. All keys are
# P-256: making one RSA key takes longer than all of this together.

pki='' kubeconfigs=''
pki_days=3650

# openssl_quiet ARGS...: says nothing unless it fails.
openssl_quiet() {
  local output
  output=$(openssl "$@" 2>&1) || die "openssl $1 failed: $output"
}

pki_ca() { # NAME
  openssl_quiet req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$pki_days" \
    -subj "/CN=$1" -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$pki/$1.key" -out "$pki/$1.crt"
}

# pki_issue FILE SUBJECT USAGE [NAMES [CA]]: FILE.key and FILE.crt, signed by CA (ca).
# USAGE is serverAuth or clientAuth; NAMES is a subjectAltName.
pki_issue() {
  local file=$1 subject=$2 usage=$3 names=${4:-} ca=$pki/${5:-ca}
  openssl_quiet req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -subj "$subject" -keyout "$file.key" -out "$file.csr"
  {
    printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=%s\n' "$usage"
    [ -z "$names" ] || printf 'subjectAltName=%s\n' "$names"
  } > "$file.ext"
  # A random serial number: with a counter in a file, two callers at once could issue the same.
  openssl_quiet x509 -req -in "$file.csr" -CA "$ca.crt" -CAkey "$ca.key" \
    -set_serial "0x$(openssl rand -hex 16)" -days "$pki_days" -extfile "$file.ext" -out "$file.crt"
  rm -f "$file.csr" "$file.ext"
}

# pki_service_account_key: signs the tokens of pods.
pki_service_account_key() {
  openssl_quiet genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$pki/service-account.key"
  openssl_quiet pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
}

# kubeconfig OUT SERVER CERTIFICATE: with everything inside; CERTIFICATE.crt and .key are read.
kubeconfig() {
  local out=$1 server=$2 certificate=$3
  cat > "$out" <<END
apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster:
    server: $server
    certificate-authority-data: $(base64 -w 0 < "$pki/ca.crt")
users:
- name: me
  user:
    client-certificate-data: $(base64 -w 0 < "$certificate.crt")
    client-key-data: $(base64 -w 0 < "$certificate.key")
contexts:
- name: lab
  context: {cluster: lab, user: me}
current-context: lab
END
}

# client NAME SUBJECT SERVER: a kubeconfig of that name for one of our own programs.
client() {
  pki_issue "$pki/$1" "$2" clientAuth
  kubeconfig "$kubeconfigs/$1" "$3" "$pki/$1"
}
