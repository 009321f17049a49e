#include "server/dashboard/activity.h"

#include <string.h>

#include "json/json_write.h"

enum { MINUTE_MS = 60000 };

/* The event that is counted, and the name of the count. */
static const char *const kinds[ACTIVITY_KINDS][2] = {
    [ACTIVITY_ACQUIRED] = { "lock.acquired", "acquired" },
    [ACTIVITY_RELEASED] = { "lock.released", "released" },
    [ACTIVITY_REFUSED] = { "lock.refused", "refused" },
    [ACTIVITY_RENEWED] = { "lock.renewed", "renewed" },
    [ACTIVITY_FORCED] = { "lock.forced", "forced" },
    [ACTIVITY_TAKEN_OVER] = { "lock.taken_over", "taken_over" },
    [ACTIVITY_WAITS] = { "wait.ended", "waits" },
};

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

static void add_time(struct activity_time *time, int64_t sum_ms, int64_t max_ms)
{
    time->sum_ms += sum_ms;
    time->max_ms = max_ms > time->max_ms ? max_ms : time->max_ms;
}

void activity_add(struct activity *activity, const struct belay_event *event)
{
    struct activity_minute *minute = minute_of(activity, event->at_unix_ms);
    int64_t ms = event->duration_ms;
    size_t kind = 0;

    if (minute == NULL) {
        return;
    }
    activity->n++;
    while (kind < ACTIVITY_KINDS && strcmp(event->type, kinds[kind][0]) != 0) {
        kind++;
    }
    if (kind == ACTIVITY_KINDS) {
        return;
    }
    minute->counts[kind]++;
    minute->counts[ACTIVITY_RELEASED] += kind == ACTIVITY_FORCED;
    if (ms >= 0 && (kind == ACTIVITY_RELEASED || kind == ACTIVITY_FORCED)) {
        add_time(&minute->held, ms, ms);
        minute->spans[span_of_held(ms)]++;
    } else if (ms >= 0 && kind == ACTIVITY_WAITS) {
        add_time(&minute->wait, ms, ms);
    }
}

/* ---- telling ---- */

static void add_up(struct activity_minute *sum, const struct activity_minute *one)
{
    for (size_t i = 0; i < ACTIVITY_KINDS; i++) {
        sum->counts[i] += one->counts[i];
    }
    add_time(&sum->wait, one->wait.sum_ms, one->wait.max_ms);
    add_time(&sum->held, one->held.sum_ms, one->held.max_ms);
    for (size_t i = 0; i < ACTIVITY_SPANS; i++) {
        sum->spans[i] += one->spans[i];
    }
}

/* The duration that `percent` of the locks were held at most, to within a quarter. NULL: there was none. */
static json_t *held_percentile(const struct activity_minute *sum, unsigned percent)
{
    uint64_t n = 0;
    uint64_t seen = 0;

    for (size_t i = 0; i < ACTIVITY_SPANS; i++) {
        n += sum->spans[i];
    }
    for (size_t i = 0; i < ACTIVITY_SPANS && n > 0; i++) {
        seen += sum->spans[i];
        if (seen * 100 >= n * percent) {
            int64_t ms = span_middle(i);

            return json_integer(ms > sum->held.max_ms ? sum->held.max_ms : ms);
        }
    }
    return json_null();
}

static json_t *step_json(const struct activity_minute *sum, int64_t minute)
{
    json_t *step = json_pack("{s:o}", "at", wire_time(minute * MINUTE_MS));
    json_t *times =
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "wait_ms", (json_int_t)sum->wait.sum_ms, "wait_max_ms",
                  (json_int_t)sum->wait.max_ms, "held_ms", (json_int_t)sum->held.sum_ms, "held_max_ms",
                  (json_int_t)sum->held.max_ms, "held_p50_ms", held_percentile(sum, 50), "held_p95_ms",
                  held_percentile(sum, 95));

    for (size_t i = 0; i < ACTIVITY_KINDS; i++) {
        (void)json_object_set_new(step, kinds[i][1], json_integer(sum->counts[i]));
    }
    (void)json_object_update(step, times);
    json_decref(times);
    return step;
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
