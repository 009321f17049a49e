/*
 * The file beside the database: one JSON object, written anew by a worker, at most twice a second.
 *
 *   {"targets": {"ID": {"after": 412, "since": …, "scanned": …, "held_ms": …, "wait_ms": …,
 *                       "said": [["MARK", DUE], …], "pending": [{event}, …]}}}
 *
 * `after` is the last event before the first one that is still to be sent: the store has the events. `pending` are
 * those that no store has. No URL and no secret is in it.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/new_file.h"
#include "server/notify/notify_internal.h"
#include "json/json_write.h"

/* ---- reading ---- */

static void load_said(struct notify_target *target, const json_t *said)
{
    size_t n = json_array_size(said);

    n = n > NOTIFY_SAID_MAX ? NOTIFY_SAID_MAX : n;
    target->said = calloc(n + 1, sizeof *target->said);
    for (size_t i = 0; target->said != NULL && i < n; i++) {
        const json_t *entry = json_array_get(said, i);
        const char *mark = json_string_value(json_array_get(entry, 0));

        if (mark != NULL) {
            target->said[target->n_said].mark = strtoull(mark, NULL, 16);
            target->said[target->n_said++].due_unix_ms = json_integer_value(json_array_get(entry, 1));
        }
    }
}

static void load_pending(struct notify_target *target, const json_t *pending)
{
    const json_t *event;
    size_t i;

    json_array_foreach(pending, i, event)
    {
        const char *at = json_string_value(json_object_get(event, "timestamp"));

        if (json_is_object(event)) {
            notice_add(target, 0, clock_parse_utc(at), wire_line(json_deep_copy(event)));
        }
    }
}

/* A target with other durations than before is scanned as a new one. */
static void load_target(struct notify_target *target, const json_t *state, uint64_t tail)
{
    uint64_t after = (uint64_t)json_integer_value(json_object_get(state, "after"));

    target->start = after < tail ? after : tail; /* a database that was restored has fewer events */
    target->since_unix_ms = json_integer_value(json_object_get(state, "since"));
    if (json_integer_value(json_object_get(state, "held_ms")) == target->settings->held_ms &&
        json_integer_value(json_object_get(state, "wait_ms")) == target->settings->wait_ms) {
        target->scanned_unix_ms = json_integer_value(json_object_get(state, "scanned"));
    }
    load_said(target, json_object_get(state, "said"));
    load_pending(target, json_object_get(state, "pending"));
}

void notify_file_load(struct notify *notify, struct notify_target *targets, uint64_t tail)
{
    json_error_t why;
    json_t *root;

    if (notify->path == NULL) {
        return;
    }
    root = json_load_file(notify->path, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL && access(notify->path, F_OK) == 0) {
        log_note(&notify->server->log, LOG_WARN, "notify", "%s: %s; notifications begin with new events",
                 notify->path, why.text);
    }
    for (struct notify_target *target = targets; target != NULL; target = target->next) {
        const json_t *state = json_object_get(json_object_get(root, "targets"), target->settings->id);

        if (json_is_object(state)) {
            load_target(target, state, tail);
        }
    }
    json_decref(root);
}

/* ---- writing ---- */

static json_t *said_of(const struct notify_target *target)
{
    json_t *said = json_array();
    char mark[20];

    for (size_t i = 0; i < target->n_said; i++) {
        (void)snprintf(mark, sizeof mark, "%016" PRIx64, target->said[i].mark);
        (void)json_array_append_new(said, json_pack("[s, I]", mark, (json_int_t)target->said[i].due_unix_ms));
    }
    return said;
}

static json_t *pending_of(const struct notify_target *target)
{
    json_t *pending = json_array();

    for (const struct notice *notice = target->first; notice != NULL; notice = notice->next) {
        if (notice->event_id == 0) {
            (void)json_array_append_new(pending, json_loads(notice->event, 0, NULL));
        }
    }
    return pending;
}

static json_t *target_state(const struct notify_target *target, uint64_t newest)
{
    uint64_t done = notify_target_done(target);

    done = done < newest ? done : newest;
    if (target->notify->catch_up != NULL || done < target->start) {
        done = target->start; /* what is between has not been read */
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "after", (json_int_t)done, "since",
                     (json_int_t)target->since_unix_ms, "scanned", (json_int_t)target->scanned_unix_ms,
                     "held_ms", (json_int_t)target->settings->held_ms, "wait_ms",
                     (json_int_t)target->settings->wait_ms, "said", said_of(target), "pending",
                     pending_of(target));
}

static char *make_file_text(const struct notify *notify, uint64_t newest)
{
    json_t *targets = json_object();
    json_t *root = json_pack("{s:o}", "targets", targets);
    char *text;

    for (const struct notify_target *target = notify->first; root != NULL && target != NULL;
         target = target->next) {
        if (!target->is_removed) {
            (void)json_object_set_new(targets, target->settings->id, target_state(target, newest));
        }
    }
    text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* False with errno set. */
static bool replace_file(const char *path, const char *text)
{
    char *temp = NULL;
    int fd = new_file_open(path, "new", &temp);
    bool ok =
        fd >= 0 && file_write_all(fd, text, strlen(text)) && fsync(fd) == 0 && new_file_replace(temp, path);
    int why = errno;

    if (fd >= 0) {
        (void)close(fd);
    }
    if (!ok && temp != NULL) {
        (void)unlink(temp);
    }
    free(temp);
    errno = why;
    return ok;
}

static struct notify *notify_of(struct work *work)
{
    return CONTAINER_OF(work, struct notify, save_work);
}

static void save_file(struct work *work)
{
    struct notify *notify = notify_of(work);

    notify->save_failed = !replace_file(notify->path, notify->save_text);
    if (notify->save_failed) {
        (void)snprintf(notify->save_why, sizeof notify->save_why, "%s", strerror(errno));
    }
}

static void on_save_timer(struct timer *timer);

static void start_timer(struct notify *notify)
{
    struct loop *loop = notify->server->loop;

    notify->save_timer.fire = on_save_timer;
    notify->is_save_due =
        !notify->is_stopped && loop_timer_set(loop, &notify->save_timer, loop_now_ms(loop) + NOTIFY_SAVE_MS);
}

static void on_saved(struct work *work)
{
    struct notify *notify = notify_of(work);

    assert(notify->save_text != NULL);
    free(notify->save_text);
    notify->save_text = NULL;
    if (notify->save_failed && !work->is_cancelled) {
        log_note(&notify->server->log, LOG_WARN, "notify", "cannot write %s: %s", notify->path,
                 notify->save_why);
    }
    if (notify->is_dirty) {
        start_timer(notify);
    }
}

/* Events seen before the previous save are safe: an event of another thread reaches the loop much sooner. */
static void on_save_timer(struct timer *timer)
{
    struct notify *notify = CONTAINER_OF(timer, struct notify, save_timer);

    notify->is_save_due = false;
    if (work_is_pending(&notify->save_work) || notify->is_stopped) {
        return; /* on_saved() starts it again */
    }
    assert(notify->save_text == NULL && notify->newest_saved <= notify->newest);
    notify->save_text = make_file_text(notify, notify->newest_saved);
    notify->is_dirty = notify->told > notify->newest_saved;
    notify->newest_saved = notify->newest;
    notify->save_failed = false;
    notify->save_work = (struct work){ .work = save_file, .done = on_saved };
    if (notify->save_text == NULL || !work_queue(notify->server->workers, WORK_SCAN, &notify->save_work)) {
        free(notify->save_text);
        notify->save_text = NULL;
        notify->is_dirty = true;
        start_timer(notify);
    }
}

void notify_file_save(struct notify *notify)
{
    if (notify->path == NULL || notify->is_stopped) {
        return;
    }
    notify->is_dirty = true;
    if (!notify->is_save_due && !work_is_pending(&notify->save_work)) {
        start_timer(notify);
    }
}

void notify_file_write(struct notify *notify)
{
    char *text;

    while (work_is_pending(&notify->save_work) && loop_turn(notify->server->loop, 1000)) {
    }
    if (notify->path == NULL || (text = make_file_text(notify, notify->newest)) == NULL) {
        return;
    }
    if (!replace_file(notify->path, text)) {
        log_note(&notify->server->log, LOG_WARN, "notify", "cannot write %s: %s", notify->path,
                 strerror(errno));
    }
    free(text);
}
