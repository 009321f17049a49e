#!/usr/bin/env bash
# Install into a temporary place and use what is there as a stranger would: the program, the
# header from C and C++, pkg-config, the static and the shared library, and dlopen.
#
#   test/install/library.sh BUILD_DIR
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
# shellcheck source=test/support/check.sh
. test/support/check.sh
# shellcheck source=test/support/page.sh
. test/support/page.sh

installed() { DESTDIR="$work/root" cmake --install "$build" --prefix /usr; }
check "installs under DESTDIR and a prefix" installed
everything() {
    local file
    for file in bin/belay lib/libbelay.so lib/libbelay.a include/belay.h include/belay/store.h include/belay/blob.h include/belay/state.h include/belay/shared_db.h lib/pkgconfig/belay.pc lib/cmake/belay/belay-config.cmake lib/systemd/system/belay.service \
        share/doc/belay/docs/server.md share/doc/belay/deploy/systemd/belay.socket lib/belay/belay-net.so lib/belay/belay-serve.so \
        share/man/man1/belay.1 share/man/man1/belay-run.1 share/bash-completion/completions/belay \
        share/zsh/site-functions/_belay share/fish/vendor_completions.d/belay.fish; do
        [ -s "$work/root/usr/$file" ] || { echo "$file is missing or empty"; return 1; }
    done
}
check "program, libraries, headers, man pages, completions, unit and docs are there" everything
unit_names_program() { grep -qx 'ExecStart=/usr/bin/belay serve .*' "$work/root/usr/lib/systemd/system/belay.service"; }
check "the unit starts the program that was installed with it" unit_names_program

from_source() { # docs/install.md, below a DESTDIR
    bash -ec "$(page_command docs/install.md 'make install') DESTDIR='$work/local' BELAY_NO_SETUP=1" && [ "$("$work/local/usr/local/bin/belay" --version)" = "$("$build/belay" --version)" ] &&
        grep -qx 'ExecStart=/usr/local/bin/belay serve .*' "$work/local/usr/local/lib/systemd/system/belay.service"
}
check "docs/install.md: make install" from_source

lib=$(dirname "$(find "$work/root/usr" -name 'libbelay.so' | head -1)")
export PKG_CONFIG_PATH="$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work/root" LD_LIBRARY_PATH="$lib"
export BELAY_STORE="sqlite:$work/locks.db"
strict=(-Wall -Wextra -Wpedantic -Werror)

nothing_of_the_build_tree() { ! grep -r --binary-files=without-match -F -e "$PWD" "$work/root"; }
check "what is installed names no path of the source tree" nothing_of_the_build_tree
pc_version() { [ "$(pkg-config --modversion belay)" = "$("$work/root/usr/bin/belay" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')" ]; }
check "pkg-config and the program tell the same version" pc_version

# docs/library.md shows the example as it is compiled here, to the letter.
# shellcheck disable=SC2016 # they are no variables
shown() { diff <(sed -n '/^```c$/,/^```$/p' docs/library.md | sed '/^```/d') examples/deploy.c; }
check "docs/library.md shows examples/deploy.c" shown

for example in examples/*.c; do
    name=$(basename "$example" .c)
    # shellcheck disable=SC2046 # flags
    compile_shared() { gcc -std=c11 "${strict[@]}" "$example" -o "$work/$name" $(eval "$(page_command docs/install.md 'pkg-config')"); }
    check "$example compiles against what is installed" compile_shared
    # shellcheck disable=SC2046
    compile_static() {
        # The archive instead of the library, and what it needs, from belay.pc.
        gcc -std=c11 "${strict[@]}" "$example" -o "$work/$name-static" -I"$work/root/usr/include" \
            $(PKG_CONFIG_SYSROOT_DIR='' pkg-config --static --libs belay | sed "s|-L/usr/lib||; s|-lbelay|$lib/libbelay.a|")
    }
    check "$example links with libbelay.a" compile_static
    check "$example runs with the shared library" "$work/$name"
    check "$example runs with the archive" "$work/$name-static"
done

cat >"$work/user.cpp" <<'CPP'
#include <belay.h>
#include <belay/blob.h>
#include <belay/shared_db.h>
#include <belay/state.h>
#include <belay/store.h>
#include <dlfcn.h>
#include <cstdio>
#include <cstring>

int main(int, char **argv)
{
    // dlopen: no global state that would need the program's help, nothing printed, closes cleanly.
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    auto open_client = reinterpret_cast<decltype(&belay_client_open)>(dlsym(library, "belay_client_open"));
    auto close_client = reinterpret_cast<decltype(&belay_client_close)>(dlsym(library, "belay_client_close"));
    auto acquire = reinterpret_cast<decltype(&belay_lock_acquire)>(dlsym(library, "belay_lock_acquire"));
    auto release = reinterpret_cast<decltype(&belay_lock_release)>(dlsym(library, "belay_lock_release"));
    auto forget = reinterpret_cast<decltype(&belay_lock_free)>(dlsym(library, "belay_lock_free"));
    auto token = reinterpret_cast<decltype(&belay_lock_token)>(dlsym(library, "belay_lock_token"));
    belay_client_options client_options = BELAY_CLIENT_OPTIONS_INIT;
    belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    belay_error err = BELAY_ERROR_INIT;
    belay_client *client = nullptr;
    belay_lock *lock = nullptr;

    client_options.store_url = argv[2];
    options.ttl_ms = 5000;
    options.heartbeat_ms = 1000;
    if (open_client(&client_options, &client, &err) != BELAY_OK ||
        acquire(client, "from-c++", &options, &lock, &err) != BELAY_OK || token(lock) == 0 ||
        release(lock, BELAY_OUTCOME_COMPLETED, &err) != BELAY_OK) {
        std::fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    forget(lock);
    close_client(client);
    return dlclose(library);
}
CPP
compile_cpp() { g++ -std=c++11 "${strict[@]}" "$work/user.cpp" -o "$work/user" -I"$work/root/usr/include" -ldl; }
check "all headers compile as C++11" compile_cpp
check "a C++ program uses the library by dlopen" "$work/user" "$lib/libbelay.so" "$BELAY_STORE"
quiet() { [ -z "$("$work/user" "$lib/libbelay.so" "$BELAY_STORE" 2>&1)" ]; }
check "and the library prints nothing" quiet

only_belay() { ! nm -D --defined-only "$lib/libbelay.so" | awk '{ print $3 }' | grep -v '^belay_'; }
check "libbelay.so exports only belay_ names" only_belay
only_belay_in_archive() {
    nm -g --defined-only "$lib/libbelay.a" | awk 'NF == 3 { print $3 }' >"$work/names"
    grep -q '^belay_client_open$' "$work/names" && ! grep -v '^belay_' "$work/names"
}
check "libbelay.a defines only belay_ names" only_belay_in_archive
cat >"$work/clash.c" <<'C'
#include <belay.h>

/* Names that the library has inside. If it called these, it would not come back. */
_Noreturn void error_set(void);
_Noreturn void error_set(void)
{
    for (;;) {
    }
}
_Noreturn void buf_add(void);
_Noreturn void buf_add(void)
{
    for (;;) {
    }
}

int main(void)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_config *config = NULL;

    return belay_config_load("/nowhere/at/all.yaml", &config, &err) == BELAY_OK;
}
C
# shellcheck disable=SC2046 # flags
clash() {
    gcc -std=c11 "${strict[@]}" "$work/clash.c" -o "$work/clash" -I"$work/root/usr/include" "$lib/libbelay.a" \
        $(PKG_CONFIG_SYSROOT_DIR='' pkg-config --static --libs-only-l belay | sed 's/-lbelay//') -pthread && timeout 20 "$work/clash"
}
check "a program with names like those inside libbelay.a links and runs" clash
cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES C)
$(page_command docs/install.md 'find_package(belay')
foreach(kind belay belay_static)
  add_executable(with_\${kind} deploy.c)
  target_link_libraries(with_\${kind} PRIVATE belay::\${kind})
endforeach()
CMAKE
found_by_cmake() {
    cp examples/deploy.c "$work/"
    cmake -S "$work" -B "$work/cmake" -Dbelay_DIR="$lib/cmake/belay" && cmake --build "$work/cmake" &&
        "$work/cmake/with_belay" && "$work/cmake/with_belay_static" &&
        [[ $(ldd "$work/cmake/with_belay") == *libbelay* && $(ldd "$work/cmake/with_belay_static") != *libbelay* ]]
}
check "find_package(belay) gives the shared and the static library" found_by_cmake
newer_by_cmake() { ! cmake -S "$work" -B "$work/cmake2" -Dbelay_DIR="$lib/cmake/belay" 2>"$work/err" && grep -q 'requested version "9' "$work/err"; }
sed -i 's/^find_package.*/find_package(belay 9 REQUIRED)/' "$work/CMakeLists.txt"
check "find_package(belay 9) is refused" newer_by_cmake
program_works() { "$work/root/usr/bin/belay" run installed -- true && "$work/root/usr/bin/belay" status installed; }
check "the installed program takes a lock" program_works
man_pages() { mandoc -T lint -W error "$work"/root/usr/share/man/man1/*.1; }
check "the man pages are sound" man_pages

check_summary
