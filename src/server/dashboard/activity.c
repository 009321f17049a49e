#include "server/dashboard/activity.h"

#include <string.h>

#include "json/json_write.h"

enum { MINUTE_MS = 60000 };

/* ---- counting ---- */

/* Two spans for each doubling: [2^k, 1.5 * 2^k) and [1.5 * 2^k, 2^(k+1)) milliseconds. */
static size_t span_of_held(int64_t ms)
{
    size_t k = 0;

    while (k < ACTIVITY_SPANS / 2 - 1 && ms >> (k + 1) > 0) {
        k++;
    }
    return 2 * k + (k > 0 && (ms >> (k - 1) & 1) != 0 ? 1 : 0);
}

/* The middle of a span stands for all durations in it. */
static int64_t span_middle(size_t span)
{
    int64_t low = (int64_t)1 << (span / 2);

    return span % 2 == 0 ? low + low / 4 : low + low / 2 + low / 4;
}

static struct activity_minute *minute_of(struct activity *activity, int64_t unix_ms)
{
    int64_t number = unix_ms / MINUTE_MS;
    struct activity_minute *minute = &activity->minutes[(size_t)(number % ACTIVITY_MINUTES)];

    if (number <= 0 || minute->minute > number) {
        return NULL; /* older than a day */
    }
    if (minute->minute < number) {
        memset(minute, 0, sizeof *minute);
        minute->minute = number;
    }
    return minute;
}

static void count_held(struct activity_minute *minute, int64_t ms)
{
    minute->released++;
    if (ms >= 0) {
        minute->held_ms += ms;
        minute->held_max_ms = ms > minute->held_max_ms ? ms : minute->held_max_ms;
        minute->held[span_of_held(ms)]++;
    }
}

static void count_wait(struct activity_minute *minute, int64_t ms)
{
    minute->waits++;
    if (ms >= 0) {
        minute->wait_ms += ms;
        minute->wait_max_ms = ms > minute->wait_max_ms ? ms : minute->wait_max_ms;
    }
}

void activity_add(struct activity *activity, const struct belay_event *event)
{
    struct activity_minute *minute = minute_of(activity, event->at_unix_ms);
    const char *type = event->type;

    if (minute == NULL) {
        return;
    }
    activity->n++;
    if (strcmp(type, "lock.acquired") == 0) {
        minute->acquired++;
    } else if (strcmp(type, "lock.released") == 0) {
        count_held(minute, event->duration_ms);
    } else if (strcmp(type, "lock.renewed") == 0) {
        minute->renewed++;
    } else if (strcmp(type, "lock.refused") == 0) {
        minute->refused++;
    } else if (strcmp(type, "wait.ended") == 0) {
        count_wait(minute, event->duration_ms);
    } else if (strcmp(type, "lock.forced") == 0) {
        minute->forced++;
        count_held(minute, event->duration_ms);
    } else if (strcmp(type, "lock.taken_over") == 0) {
        minute->taken_over++;
    }
}

/* ---- telling ---- */

static void add_up(struct activity_minute *sum, const struct activity_minute *one)
{
    sum->acquired += one->acquired;
    sum->released += one->released;
    sum->refused += one->refused;
    sum->renewed += one->renewed;
    sum->forced += one->forced;
    sum->taken_over += one->taken_over;
    sum->waits += one->waits;
    sum->wait_ms += one->wait_ms;
    sum->wait_max_ms = one->wait_max_ms > sum->wait_max_ms ? one->wait_max_ms : sum->wait_max_ms;
    sum->held_ms += one->held_ms;
    sum->held_max_ms = one->held_max_ms > sum->held_max_ms ? one->held_max_ms : sum->held_max_ms;
    for (size_t i = 0; i < ACTIVITY_SPANS; i++) {
        sum->held[i] += one->held[i];
    }
}

/* The duration that `percent` of the locks were held at most, to within a quarter. NULL: there was none. */
static json_t *held_percentile(const struct activity_minute *sum, unsigned percent)
{
    uint64_t n = 0;
    uint64_t seen = 0;

    for (size_t i = 0; i < ACTIVITY_SPANS; i++) {
        n += sum->held[i];
    }
    for (size_t i = 0; i < ACTIVITY_SPANS && n > 0; i++) {
        seen += sum->held[i];
        if (seen * 100 >= n * percent) {
            int64_t ms = span_middle(i);

            return json_integer(ms > sum->held_max_ms ? sum->held_max_ms : ms);
        }
    }
    return json_null();
}

static json_t *step_json(const struct activity_minute *sum, int64_t minute)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "at",
                     wire_time(minute * MINUTE_MS), "acquired", (json_int_t)sum->acquired, "released",
                     (json_int_t)sum->released, "refused", (json_int_t)sum->refused, "renewed",
                     (json_int_t)sum->renewed, "forced", (json_int_t)sum->forced, "taken_over",
                     (json_int_t)sum->taken_over, "waits", (json_int_t)sum->waits, "wait_ms",
                     (json_int_t)sum->wait_ms, "wait_max_ms", (json_int_t)sum->wait_max_ms, "held_ms",
                     (json_int_t)sum->held_ms, "held_max_ms", (json_int_t)sum->held_max_ms, "held_p50_ms",
                     held_percentile(sum, 50), "held_p95_ms", held_percentile(sum, 95));
}

static struct activity_minute sum_of_minutes(const struct activity *activity, int64_t from, int64_t to)
{
    struct activity_minute sum = { 0 };

    for (int64_t number = from; number < to; number++) {
        const struct activity_minute *minute = &activity->minutes[(size_t)(number % ACTIVITY_MINUTES)];

        if (minute->minute == number) {
            add_up(&sum, minute);
        }
    }
    return sum;
}

json_t *activity_json(const struct activity *activity, int64_t hours, int64_t now_unix_ms)
{
    const int64_t step = hours <= 1 ? 1 : hours <= 6 ? 5 : 15; /* minutes */
    int64_t end = now_unix_ms / MINUTE_MS / step * step + step;
    int64_t begin = end - hours * 60;
    struct activity_minute total = sum_of_minutes(activity, begin, end);
    json_t *steps = json_array();

    for (int64_t minute = begin; minute < end; minute += step) {
        struct activity_minute sum = sum_of_minutes(activity, minute, minute + step);

        if (json_array_append_new(steps, step_json(&sum, minute)) != 0) {
            json_decref(steps);
            return NULL;
        }
    }
    return json_pack("{s:I, s:o, s:o}", "step_ms", (json_int_t)step * MINUTE_MS, "total",
                     step_json(&total, begin), "steps", steps);
}
