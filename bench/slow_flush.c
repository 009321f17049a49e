/*
 * To preload into PostgreSQL: a flush takes BENCH_FLUSH_MS longer. The disk of a virtual machine may flush in 0.05 ms,
 * replicated block storage takes 1 ms and more, and the ratio of two programs that flush depends on that.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int fdatasync(int fd)
{
    static int (*flush)(int);
    static struct timespec pause;

    if (flush == NULL) {
        const char *text = getenv("BENCH_FLUSH_MS");
        long ms = text == NULL ? 0 : strtol(text, NULL, 10);

        pause = (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
        *(void **)&flush = dlsym(RTLD_NEXT, "fdatasync");
    }
    (void)nanosleep(&pause, NULL);
    return flush(fd);
}
