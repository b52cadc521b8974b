# shellcheck shell=bash
# Whether the log's disks can be cut off from their power here. To be sourced after packages.sh.
#
#   loop_mounts   true when root may mount an ext4 image through a loop device; why not goes to stderr

loop_mounts() {
  need_commands "the power cut of the log's disks" mkfs.ext4:e2fsprogs mount:mount unshare:util-linux
  local folder status=0
  folder=$(mktemp -d)
  truncate -s 8M "$folder/image"
  mkfs.ext4 -q -F "$folder/image"
  mkdir "$folder/there"
  # In a mount namespace of its own, so that nothing stays mounted.
  as_root unshare --mount --propagation private mount -o loop "$folder/image" "$folder/there" || status=$?
  rm -rf "$folder"
  return "$status"
}
