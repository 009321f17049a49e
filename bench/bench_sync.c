/*
 * What the disk allows: appends of 128 bytes a second, each followed by fdatasync().
 *
 *     bench_sync FILE SECONDS
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    static const char line[128];
    unsigned long done = 0;
    double seconds, began;
    int fd;

    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench_sync FILE SECONDS\n");
        return 64;
    }
    seconds = strtod(argv[2], NULL);
    fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    began = now_s();
    while (now_s() - began < seconds) {
        if (write(fd, line, sizeof line) != (ssize_t)sizeof line || fdatasync(fd) != 0) {
            perror(argv[1]);
            (void)close(fd);
            return 1;
        }
        done++;
    }
    (void)printf("%.0f\n", (double)done / (now_s() - began));
    (void)close(fd);
    return 0;
}
