#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/top/top.h"

/* Alternate screen, hidden cursor, no line wrapping; and the reverse. */
#define ENTER_SCREEN "\033[?1049h\033[?25l\033[?7l"
#define LEAVE_SCREEN "\033[?7h\033[?25h\033[?1049l"

static void write_screen(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, data, len);

        if (n <= 0) {
            return; /* the terminal is gone: the next read reports it */
        }
        data += n;
        len -= (size_t)n;
    }
}

/* Nothing to do: it ends the wait of the loop, which draws again. */
static void on_resize(int number)
{
    (void)number;
}

bool top_terminal_open(struct top_terminal *terminal, bool color)
{
    struct termios raw;
    struct sigaction resize = { .sa_handler = on_resize };
    sigset_t only_resize;

    if (tcgetattr(STDIN_FILENO, &terminal->before) != 0) {
        return false;
    }
    raw = terminal->before;
    /* Ctrl-C stays a signal. Ctrl-Z is disabled: it would leave the shell with a raw terminal. */
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_iflag &= ~(tcflag_t)(IXON | ICRNL);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
        return false;
    }
    terminal->is_open = true;
    /* Delivered only while the loop waits, so that none comes between drawing and waiting. */
    (void)sigaction(SIGWINCH, &resize, NULL);
    (void)sigemptyset(&only_resize);
    (void)sigaddset(&only_resize, SIGWINCH);
    (void)pthread_sigmask(SIG_BLOCK, &only_resize, &terminal->while_waiting);
    terminal->color = color;
    write_screen(ENTER_SCREEN, sizeof ENTER_SCREEN - 1);
    top_terminal_resize(terminal);
    return true;
}

void top_terminal_close(struct top_terminal *terminal)
{
    if (terminal->is_open) {
        terminal->is_open = false;
        write_screen(LEAVE_SCREEN, sizeof LEAVE_SCREEN - 1);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal->before);
    }
}

void top_terminal_resize(struct top_terminal *terminal)
{
    struct winsize size = { 0 };
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;

    terminal->rows = is_known ? size.ws_row : 24;
    terminal->columns = is_known ? size.ws_col : 80;
    terminal->columns -=
        terminal->columns > 1; /* to erase the rest of a full line would erase its last column */
}

void top_terminal_write(const struct buf *out)
{
    if (!out->failed && out->data != NULL) {
        write_screen(out->data, out->len);
    }
}

/* ---- keys ---- */

struct key_sequence {
    const char *bytes;
    int key;
};

static const struct key_sequence sequences[] = {
    { "\033[A", TOP_UP },         { "\033OA", TOP_UP },    { "\033[B", TOP_DOWN },   { "\033OB", TOP_DOWN },
    { "\033[5~", TOP_PAGE_UP },   { "\033[H", TOP_HOME },  { "\033OH", TOP_HOME },   { "\033[1~", TOP_HOME },
    { "\033[6~", TOP_PAGE_DOWN }, { "\033[F", TOP_END },   { "\033OF", TOP_END },    { "\033[4~", TOP_END },
    { "\033[C", TOP_ENTER },      { "\033OC", TOP_ENTER }, { "\033[D", TOP_ESCAPE }, { "\033OD", TOP_ESCAPE },
};

/* The length of an unknown escape sequence; 1: the Escape key alone. */
static size_t skip_sequence(const char *bytes, size_t n)
{
    size_t len = 2;

    if (n < 2 || bytes[1] != '[') {
        return 1;
    }
    while (len < n && (bytes[len] < '@' || bytes[len] > '~')) {
        len++;
    }
    return len < n ? len + 1 : n;
}

static size_t read_escape(const char *bytes, size_t n, int *out_key)
{
    size_t len;

    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        len = strlen(sequences[i].bytes);
        if (len <= n && memcmp(bytes, sequences[i].bytes, len) == 0) {
            *out_key = sequences[i].key;
            return len;
        }
    }
    len = skip_sequence(bytes, n);
    *out_key = len == 1 ? TOP_ESCAPE : TOP_NONE;
    return len;
}

size_t top_keys(const char *bytes, size_t n, int *out_keys, size_t max)
{
    size_t found = 0;

    for (size_t at = 0; at < n && found < max;) {
        int key = (unsigned char)bytes[at];
        size_t len = 1;

        if (key == '\033') {
            len = read_escape(bytes + at, n - at, &key);
        } else if (key == '\r' || key == '\n') {
            key = TOP_ENTER;
        } else if (key == 0x7f || key == '\b') {
            key = TOP_BACKSPACE;
        }
        if (key != TOP_NONE) {
            out_keys[found++] = key;
        }
        at += len;
    }
    return found;
}
