#!/usr/bin/env bash
# Prepares everything the VM suite of this directory needs: host packages,
# two Debian kernels with RDS (downloaded and unpacked, never installed) and
# one initrd for each. Safe to run at any time: a run with nothing to do takes
# well under a second.
#
#   interop/setup.sh             prepare, or do nothing if the cache is fresh
#   interop/setup.sh --refresh   look for newer kernels even if it is fresh
#
# Environment
#   RDS_VM_CACHE    where everything is kept; default
#                   ${XDG_CACHE_HOME:-$HOME/.cache}/rds-interop
#   RDS_VM_MIRROR   Debian mirror; default: the one in this host's apt sources
#   RDS_VM_MAX_AGE  days after which newer kernels are looked for; default 7
#   RDS_VM_OFFLINE  1: never touch the network, fail if something is missing
set -euo pipefail
shopt -s nullglob

# Where Debian keeps modprobe and depmod, not in the PATH of every user.
PATH=$PATH:/usr/sbin:/sbin
self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
cache=${RDS_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rds-interop}
max_age=${RDS_VM_MAX_AGE:-7}
offline=${RDS_VM_OFFLINE:-0}
refresh=0
fallback_mirror=http://deb.debian.org/debian

say() { printf 'interop/setup: %s\n' "$*" >&2; }
die() { printf 'interop/setup: error: %s\n' "$*" >&2; exit 1; }
trap 'die "line $LINENO: \"$BASH_COMMAND\" failed with status $?"' ERR

case ${1:-} in
'') ;;
--refresh) refresh=1 ;;
*) die "unknown argument $1 (the only one is --refresh)" ;;
esac

# retry N COMMAND... runs it up to N times with growing pauses: a mirror may
# be in the middle of an update, a proxy may hiccup.
retry() {
  local n=$1 i
  shift
  for ((i = 1; ; i++)); do
    "$@" && return 0
    ((i < n)) || return 1
    say "attempt $i of $n failed, again in $((i * 3)) s: $*"
    sleep $((i * 3))
  done
}

as_root() { if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi; }

need_root() {
  [[ $EUID -eq 0 ]] || command -v sudo >/dev/null || die "must be root to install $*, and there is no sudo: run this as root once"
}

# --- 1. host packages --------------------------------------------------------

packages=(qemu-system-x86 busybox-static iproute2 tcpdump cpio gzip kmod xz-utils
  libc-bin util-linux debian-archive-keyring)

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# host_apt keeps the many lines of dpkg out of the way, in a log.
host_apt() {
  echo "--- apt-get $*" >>"$cache/apt.log"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@" >>"$cache/apt.log" 2>&1
}

host_apt_failed() { tail -n 25 "$cache/apt.log" >&2; die "$* (log: $cache/apt.log)"; }

host_update() {
  retry 4 host_apt update || host_apt_failed "apt-get update failed: check this host's apt sources in /etc/apt"
}

install_packages() {
  local missing=() p
  for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
  ((${#missing[@]})) || return 0
  [[ $offline != 1 ]] || die "RDS_VM_OFFLINE=1, but these packages are not installed: ${missing[*]}"
  command -v apt-get >/dev/null || die "no apt-get: install by hand: ${missing[*]}"
  need_root "${missing[@]}"
  say "installing ${missing[*]}"
  host_update
  retry 3 host_apt install -y --no-install-recommends "${missing[@]}" ||
    host_apt_failed "apt-get install ${missing[*]} failed"
}

# --- 2. the private apt: bookworm for 6.1, trixie-backports for 7.x ----------
#
# An apt with its own sources, lists and (empty) status never mixes a newer
# suite into this host's configuration, and finds both kernels whatever
# release the host runs.

apt_dir=$cache/apt

# host_mirrors sets mirror and security_mirror from the host's own sources, so
# that a local mirror is used where there is one. apt itself does the parsing:
# it knows both source formats.
host_mirrors() {
  mirror=${RDS_VM_MIRROR:-} security_mirror=
  local uri release codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  # shellcheck disable=SC2016 # these are apt's variables
  while read -r uri release; do
    case $release in
    *-security) [[ -n $security_mirror ]] || security_mirror=$uri ;;
    "$codename" | stable | oldstable | testing) [[ -n $mirror ]] || mirror=$uri ;;
    esac
  done < <(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' 2>/dev/null)
  if [[ -z $mirror ]]; then
    mirror=$fallback_mirror
    say "no Debian mirror in this host's apt sources, using $mirror (RDS_VM_MIRROR overrides)"
  fi
  mirror=${mirror%/} security_mirror=${security_mirror%/}
}

find_keyring() {
  local f
  for f in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
    [[ -e $f ]] && { echo "$f"; return 0; }
  done
  return 1
}

# The keys of trixie came to Debian 12 with an update of the keyring package.
# Upgrading it through the host's own, already trusted sources is the way to
# get them without trusting a download.
have_trixie_key() { local f=(/usr/share/keyrings/debian-archive-trixie-automatic.*); ((${#f[@]})); }

need_trixie_key() {
  have_trixie_key && return 0
  need_root "a newer debian-archive-keyring"
  say "debian-archive-keyring lacks the keys of trixie, upgrading it"
  host_update
  retry 3 host_apt install -y --no-install-recommends debian-archive-keyring || true
  have_trixie_key || die "debian-archive-keyring $(dpkg-query -W -f '${Version}' debian-archive-keyring) has no keys of trixie," \
    "and the host's apt sources offer no newer one (Debian 12 needs 2023.3+deb12u2 or later)"
}

write_sources() { # mirror, keyring
  local signed="[arch=amd64 signed-by=$2]"
  {
    echo "deb $signed $1 bookworm main"
    if [[ -n $security_mirror ]]; then echo "deb $signed $security_mirror bookworm-security main"; fi
    echo "deb $signed $1 trixie-backports main"
  } >"$apt_dir/sources.list"
}

private_apt_options() {
  private_apt=(
    -o Dir::Etc::sourcelist="$apt_dir/sources.list"
    -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferencesparts=/dev/null
    -o Dir::State::lists="$apt_dir/lists"
    -o Dir::State::status="$apt_dir/status"
    -o Dir::State::extended_states="$apt_dir/extended_states"
    -o Dir::Cache="$apt_dir/cache"
    -o APT::Architecture=amd64 -o APT::Architectures=amd64
    -o Acquire::Languages=none -o Acquire::Retries=3
    -o APT::Update::Error-Mode=any
    -o APT::Sandbox::User="$(id -un)"
  )
}

private_update() { apt-get "${private_apt[@]}" -qq update >&2; }

prepare_private_apt() {
  mkdir -p "$apt_dir"/{lists/partial,cache/archives/partial}
  : >"$apt_dir/status"
  host_mirrors
  need_trixie_key
  local keyring
  keyring=$(find_keyring) || die "no /usr/share/keyrings/debian-archive-keyring.gpg although debian-archive-keyring is installed"
  private_apt_options
  write_sources "$mirror" "$keyring"
  if ! retry 3 private_update; then
    [[ $mirror != "$fallback_mirror" ]] ||
      die "cannot read bookworm and trixie-backports from $mirror (sources: $apt_dir/sources.list)"
    say "$mirror does not serve bookworm and trixie-backports, trying $fallback_mirror"
    write_sources "$fallback_mirror" "$keyring"
    retry 3 private_update ||
      die "cannot read bookworm and trixie-backports from $fallback_mirror either (sources: $apt_dir/sources.list)"
  fi
}

# newest REGEXP prints the package whose name has the highest version.
newest() { apt-cache "${private_apt[@]}" search --names-only "$1" | awk '{print $1}' | sort -V | tail -n 1; }

candidate() { apt-cache "${private_apt[@]}" policy "$1" | awk '$1 == "Candidate:" {print $2}'; }

# fetch PACKAGE downloads it unless it is there already and prints the file.
fetch() {
  local pkg=$1 version file
  version=$(candidate "$pkg")
  [[ -n $version && $version != "(none)" ]] || die "$pkg: no version on offer in $apt_dir/sources.list"
  mkdir -p "$cache/debs/new"
  file=$cache/debs/${pkg}_${version//:/%3a}_amd64.deb
  if ! dpkg-deb --info "$file" >/dev/null 2>&1; then
    say "downloading $pkg $version"
    # apt-get download works in the current directory and checks the hashes.
    (cd "$cache/debs/new" && retry 4 apt-get "${private_apt[@]}" -qq download "$pkg=$version" >&2) ||
      die "download of $pkg $version failed (sources: $apt_dir/sources.list)"
    mv "$cache/debs/new/${pkg}"_*.deb "$file"
  fi
  echo "$file"
}

# --- 3. one kernel -----------------------------------------------------------

# Modules the suite needs; modprobe adds what they depend on. One that a kernel
# does not have stops the build, except those that newer kernels have built in
# (their packages carry no list of built-in modules to check against).
modules=(virtio_pci veth dummy 9pnet_virtio 9p rds rds_tcp inet_diag tcp_diag sch_netem)
maybe_builtin=" virtio_pci "

# load_order TREE VERSION prints the module files in the order of loading.
load_order() {
  local m
  for m in "${modules[@]}"; do
    if ! modprobe -q -d "$1" -S "$2" --show-depends "$m"; then
      [[ $maybe_builtin == *" $m "* ]] || die "kernel $2 has no module $m (looked in $1/lib/modules/$2)"
    fi
    # The filter below drops lines "builtin NAME" and module options.
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}'
}

unpack_modules() { # tree version: decompress what insmod of busybox cannot read
  local dir=$1/lib/modules/$2
  [[ -d $dir/kernel ]] || die "no modules in $dir after unpacking"
  # Only these subtrees are needed; the rest would cost a minute of xz.
  local part parts=()
  for part in net drivers/net drivers/virtio drivers/block fs/9p fs/netfs fs/fscache lib crypto; do
    [[ -d $dir/kernel/$part ]] && parts+=("$dir/kernel/$part")
  done
  find "${parts[@]}" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P 2 xz -d
  find "${parts[@]}" -name '*.ko.gz' -print0 | xargs -0 -r -n 64 -P 2 gzip -d
  find "${parts[@]}" -name '*.ko.zst' -print0 | xargs -0 -r -n 64 -P 2 zstd -q -d --rm
  find "$dir/kernel" -name '*.ko.*' -delete
  depmod -b "$1" "$2" 2>/dev/null || die "depmod -b $1 $2 failed"
  [[ -n $(find "$dir/kernel/net/rds" -name 'rds_tcp.ko' 2>/dev/null) ]] ||
    die "kernel $2 has no net/rds/rds_tcp.ko: not a flavour with RDS"
}

# add_program ROOT PROGRAM copies a program of the host and its libraries, at
# the same paths, so that the loader finds them without LD_LIBRARY_PATH.
add_program() {
  local bin lib
  bin=$(command -v "$2") || die "$2 is not installed"
  install -m 0755 "$(readlink -f "$bin")" "$1/sbin/$2"
  while read -r lib; do
    [[ -e $1$lib ]] || install -D -m 0755 "$(readlink -f "$lib")" "$1$lib"
  done < <(ldd "$bin" | grep -o '/[^ ]*')
}

build_initrd() { # tree version out
  local root=$3/root m
  mkdir -p "$root"/{bin,sbin,m,dev,proc,sys,tmp,run/netns,share,etc,lib,lib64,root,var}
  ln -s /run "$root/var/run"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  echo '127.0.0.1 localhost' >"$root/etc/hosts"
  install -m 0755 "$(command -v busybox)" "$root/bin/busybox"
  if ldd "$root/bin/busybox" >/dev/null 2>&1; then die "$(command -v busybox) is not static: install busybox-static"; fi
  for m in ip ss tc tcpdump; do add_program "$root" "$m"; done
  load_order "$1" "$2" >"$3/order"
  while read -r m; do
    cp "$m" "$root/m/"
    basename "$m"
  done <"$3/order" >"$root/m/order"
  install -m 0755 "$here/init.sh" "$root/init"
  (cd "$root" && find . | cpio -o -H newc --owner 0:0 --quiet | gzip -6) >"$3/initrd.gz"
  rm -rf "$root" "$3/order"
}

# build LABEL VERSION DEB... makes $cache/kernels/LABEL from unpacked packages.
build() {
  local label=$1 version=$2 key out tree deb image
  shift 2
  key=$( (echo "$host_key $label $version"; for deb in "$@"; do basename "$deb"; done) | sha256sum | cut -c1-16)
  out=$cache/kernels/$label-$key
  if [[ ! -e $out/version ]]; then
    say "building $label: $version"
    tree=$cache/tmp/$label
    rm -rf "$tree" "$tree.out"
    mkdir -p "$tree" "$tree.out" "$cache/kernels"
    for deb in "$@"; do dpkg -x "$deb" "$tree"; done
    if [[ ! -e $tree/lib ]]; then ln -s usr/lib "$tree/lib"; fi
    unpack_modules "$tree" "$version"
    image=
    for f in "$tree/boot/vmlinuz-$version" "$tree/lib/modules/$version/vmlinuz"; do
      if [[ -e $f ]]; then image=$f; fi
    done
    [[ -n $image ]] || die "no kernel image for $version in: $*"
    cp "$image" "$tree.out/vmlinuz"
    build_initrd "$tree" "$version" "$tree.out"
    echo "$version" >"$tree.out/version"
    rm -rf "$out"
    mv "$tree.out" "$out"
    rm -rf "$tree"
  fi
  ln -sfn "$label-$key" "$cache/kernels/$label"
  local old
  for old in "$cache/kernels/$label"-*; do
    if [[ $old != "$out" ]]; then rm -rf "$old"; fi
  done
  built+=("$label=$version")
  for deb in "$@"; do wanted_debs+=("$(basename "$deb")"); done
}

# --- 4. all together ---------------------------------------------------------

main() {
  [[ $(uname -m) == x86_64 ]] || die "this suite runs on x86_64 only, this is $(uname -m)"
  mkdir -p "$cache"
  command -v flock >/dev/null || die "flock (package util-linux) is missing"
  exec 9>"$cache/lock"
  flock -w 1200 9 || die "another setup holds $cache/lock for 20 minutes"

  : >"$cache/apt.log"
  install_packages
  # Everything that goes into an initrd besides the kernel.
  host_key=$( (cat "$self" "$here/init.sh"; dpkg-query -W busybox-static iproute2 tcpdump libc6) | sha256sum | cut -c1-16)

  local stamp=$cache/stamp
  if [[ $refresh == 0 && -e $stamp && $(<"$stamp") == "$host_key" &&
    -e $cache/kernels/6.1/version && -e $cache/kernels/7.x/version ]]; then
    if [[ $offline == 1 || -n $(find "$stamp" -mtime "-$max_age") ]]; then
      say "up to date: 6.1=$(<"$cache/kernels/6.1/version") 7.x=$(<"$cache/kernels/7.x/version") in $cache"
      return
    fi
  fi
  [[ $offline != 1 ]] || die "RDS_VM_OFFLINE=1, but $cache is missing or out of date"

  prepare_private_apt
  built=() wanted_debs=()

  local image61 version7 deb modules7
  image61=$(newest '^linux-image-6\.1\.0-[0-9]+-amd64$')
  [[ -n $image61 ]] || die "no linux-image-6.1.0-NN-amd64 on offer (sources: $apt_dir/sources.list)"
  version7=$(newest '^linux-binary-7\.[0-9.]+\+[a-z0-9]+-amd64$')
  version7=${version7#linux-binary-}
  [[ -n $version7 ]] || die "no linux-binary-7.* of the plain amd64 flavour in trixie-backports" \
    "(sources: $apt_dir/sources.list); on offer: $(apt-cache "${private_apt[@]}" search --names-only '^linux-(binary|image)-[0-9].*amd64$' | awk '{print $1}' | tr '\n' ' ')"

  deb=$(fetch "$image61")
  build 6.1 "${image61#linux-image-}" "$deb"
  deb=$(fetch "linux-binary-$version7")
  modules7=$(fetch "linux-modules-$version7")
  build 7.x "$version7" "$deb" "$modules7"

  # The cache must not grow with every kernel update.
  local f
  for f in "$cache"/debs/*.deb; do
    [[ " ${wanted_debs[*]} " == *" $(basename "$f") "* ]] || rm -f "$f"
  done
  rm -rf "$cache/tmp" "$cache/debs/new"
  echo "$host_key" >"$stamp"
  say "ready: ${built[*]} in $cache"
}

main
