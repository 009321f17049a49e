#include "server/http/http_internal.h"

#include <stdio.h>
#include <time.h>

const char *date_line(struct http_server *server)
{
    /* Not strftime(): its names follow the locale. */
    static const char *const days[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char *const months[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    time_t now = time(NULL);
    struct tm tm;

    if ((int64_t)now == server->date_s || gmtime_r(&now, &tm) == NULL) {
        return server->date;
    }
    server->date_s = (int64_t)now;
    (void)snprintf(server->date, sizeof server->date, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
                   days[tm.tm_wday % 7], tm.tm_mday % 100, months[tm.tm_mon % 12],
                   (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    return server->date;
}
