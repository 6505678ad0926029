# Sourced by launch/quickstart and tests/run (bash): installs packages and builds. Expects `root`,
# the repository, and `self`, the script's name for messages.

# What every build needs. Ninja is used if it is installed; Ninja or make must be.
dp_build_packages=(gcc libc6-dev cmake pkg-config libopenmpi-dev libhwloc-dev
    libopenblas-openmp-dev libdnnl-dev libyaml-dev libjansson-dev zlib1g-dev libxxhash-dev
    libturbojpeg0-dev libjpeg-dev libpng-dev libzstd-dev
    libcurl4-openssl-dev)
command -v ninja >/dev/null || dp_build_packages+=(make)

# What training the shipped models needs.
dp_run_packages=(openmpi-bin dataset-fashion-mnist)

dp_say() {
    echo "$self: $*"
}

dp_missing_packages() {
    local package
    for package in "$@"; do
        if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
            echo "$package"
        fi
    done
}

# dp_apt ARGUMENTS...: apt-get as root, without questions.
dp_apt() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 "$@"
}

dp_may_install() {
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null
}

# Fetches the lists of packages, once; container images often have none.
dp_update_lists() {
    [ -z "${dp_lists_updated:-}" ] || return 0
    dp_apt update >/dev/null || dp_say "apt-get update failed: trying with the old lists" >&2
    dp_lists_updated=1
}

# dp_install PACKAGE...: installs those that are missing; returns 69 when that is impossible.
dp_install() {
    local missing log
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        dp_say "no apt-get here: going on with what is installed (needed: $*)"
        return 0
    fi
    mapfile -t missing < <(dp_missing_packages "$@")
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    if ! dp_may_install; then
        dp_say "neither root nor sudo: ask for: apt-get install ${missing[*]}" >&2
        return 69
    fi
    dp_say "installing ${missing[*]}"
    dp_update_lists
    log=$(mktemp)
    if ! dp_apt install --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        dp_say "apt-get could not install: ${missing[*]}" >&2
        return 69
    fi
    rm -f "$log"
}

# dp_install_tools PACKAGE...: the same for packages that tests can do without.
dp_install_tools() {
    local tool missing known=()
    command -v apt-cache >/dev/null || return 0
    mapfile -t missing < <(dp_missing_packages "$@")
    if [ ${#missing[@]} -gt 0 ] && dp_may_install; then
        dp_update_lists
    fi
    for tool in "${missing[@]}"; do
        # Not through a pipe: `grep -q` exits at the first match, and SIGPIPE would end apt-cache.
        if grep -q '^ *Candidate: [^(]' <<<"$(apt-cache policy "$tool" 2>/dev/null)"; then
            known+=("$tool")
        else
            dp_say "this distribution has no $tool: its tests are skipped"
        fi
    done
    if [ ${#known[@]} -gt 0 ] && ! dp_install "${known[@]}"; then
        dp_say "going on without ${known[*]}: their tests are skipped"
    fi
}

# dp_configure FOLDER OPTION...: configures; a build folder of another checkout, or a broken one, is
# deleted first. The log is shown only after a failure. Returns 74 where it may not write.
dp_configure() {
    local folder=$1 cache=$1/CMakeCache.txt log tries=2 generator=(-G "Unix Makefiles")
    shift
    if ! mkdir -p "$folder" 2>/dev/null || [ ! -w "$folder" ]; then
        dp_say "cannot write $folder: copy the repository into a folder of your own" >&2
        return 74
    fi
    log=$(mktemp)
    command -v ninja >/dev/null && generator=(-G Ninja)
    if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
        dp_say "$folder belongs to another source folder: configuring it anew"
        rm -rf "$cache" "$folder/CMakeFiles"
    fi
    [ -f "$cache" ] || tries=1
    while ! cmake -S "$root" -B "$folder" "${generator[@]}" "$@" >"$log" 2>&1; do
        rm -rf "$cache" "$folder/CMakeFiles"
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            grep -v '^--' "$log" >&2
            rm -f "$log"
            dp_say "configuring $folder failed" >&2
            return 70
        fi
    done
    rm -f "$log"
}

# dp_build FOLDER: builds everything with all cores that this process may use.
dp_build() {
    cmake --build "$1" --parallel "$(nproc)"
}
