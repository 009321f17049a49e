/*
 * The store's clock: milliseconds of CLOCK_BOOTTIME in the initial time namespace, so that a
 * process in a container with a clock of its own agrees with all others (L7). A reading is
 * meaningful only together with the boot id.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

/* The beginning of a small file as a string; false if it cannot be read. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return false;
    }
    n = read(fd, out, size - 1);
    (void)close(fd);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    return true;
}

/*
 * timens_offsets describes the namespace of future children. That is this process's own unless
 * it has called unshare() and not started a new program since.
 */
static bool namespace_is_our_childrens(void)
{
    char ours[64];
    char childrens[64];
    ssize_t n = readlink("/proc/self/ns/time", ours, sizeof ours);

    return n < 0 || (readlink("/proc/self/ns/time_for_children", childrens, sizeof childrens) == n &&
                     memcmp(ours, childrens, (size_t)n) == 0);
}

static enum belay_code read_offset(int64_t *out_ms, struct belay_error *err)
{
    char text[256];
    const char *line;
    int64_t seconds = 0;
    int64_t nanos = 0;

    *out_ms = 0;
    if (!read_small("/proc/self/timens_offsets", text, sizeof text)) {
        return BELAY_OK; /* a kernel without time namespaces */
    }
    line = strstr(text, "boottime");
    if (line == NULL || sscanf(line, "boottime %" SCNd64 " %" SCNd64, &seconds, &nanos) != 2) {
        return error_set(err, BELAY_UNREACHABLE, "cannot understand /proc/self/timens_offsets: '%s'", text);
    }
    if (!namespace_is_our_childrens()) {
        return error_set(err, BELAY_UNREACHABLE,
                         "this process has left its time namespace without starting a new program, so the "
                         "machine's boot clock cannot be told");
    }
    *out_ms = seconds * 1000 + nanos / 1000000;
    return BELAY_OK;
}

enum belay_code sqlite_clock_init(struct sqlite_store *store, struct belay_error *err)
{
    const char *path = "/proc/sys/kernel/random/boot_id";

    if (store->hooks.boot_id != NULL) {
        (void)snprintf(store->boot_id, sizeof store->boot_id, "%s", store->hooks.boot_id);
    } else if (!read_small(path, store->boot_id, sizeof store->boot_id)) {
        return error_set(err, BELAY_UNREACHABLE,
                         "cannot read %s, without which leases of this boot cannot be told from older ones; "
                         "is /proc mounted?",
                         path);
    }
    store->boot_id[strcspn(store->boot_id, "\n")] = '\0';
    return read_offset(&store->clock_offset_ms, err);
}

int64_t sqlite_now_ms(const struct sqlite_store *store)
{
    if (store->hooks.boot_ms != NULL) {
        return store->hooks.boot_ms(store->hooks.context);
    }
    return clock_boot_ms() - store->clock_offset_ms;
}

int64_t sqlite_unix_ms(const struct sqlite_store *store)
{
    return store->hooks.unix_ms != NULL ? store->hooks.unix_ms(store->hooks.context) : clock_unix_ms();
}
