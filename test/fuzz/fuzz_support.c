/* Shared by all fuzz programs, with and without libFuzzer. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

enum { PATH_SIZE = 300, OPEN_MAX_FDS = 8 };

static char directory[PATH_SIZE];
static pid_t owner;

void fuzz_must(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "fuzz: %s\n", what);
        abort();
    }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    return at->level == 0 ? 0 : remove(path);
}

void fuzz_empty_directory(void)
{
    if (directory[0] != '\0' && getpid() == owner) {
        (void)nftw(directory, remove_one, OPEN_MAX_FDS, FTW_DEPTH | FTW_PHYS);
    }
}

static void remove_directory(void)
{
    fuzz_empty_directory();
    if (getpid() == owner) {
        (void)rmdir(directory);
    }
}

const char *fuzz_directory(void)
{
    if (directory[0] == '\0') {
        /* In memory, where a file costs microseconds. */
        (void)snprintf(directory, sizeof directory, "%s/belay-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        fuzz_must(mkdtemp(directory) != NULL, "no directory");
        owner = getpid();
        (void)atexit(remove_directory);
    }
    return directory;
}

const char *fuzz_file(const char *name, const void *data, size_t len)
{
    static char path[PATH_SIZE + 64];
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_must(fd >= 0 && write(fd, data, len) == (ssize_t)len && close(fd) == 0, "no file");
    return path;
}

#ifdef BELAY_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* FUZZ_TARGET names one of several targets; the first is the default. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct fuzz_target *target;

    if (target == NULL) {
        const char *name = getenv("FUZZ_TARGET");

        target = fuzz_targets;
        while (name != NULL && target->name != NULL && strcmp(target->name, name) != 0) {
            target++;
        }
        fuzz_must(target->name != NULL, "FUZZ_TARGET names no target of this program");
    }
    if (len <= FUZZ_MAX_INPUT) {
        target->run(data, len);
    }
    return 0;
}
#endif
