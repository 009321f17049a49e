#include "cli/core/lock_print.h"

#include <stdlib.h>
#include <string.h>

#include "base/store_url.h"
#include "base/text.h"
#include "cli/output/print.h"
#include "json/json_write.h"

int lock_print_json(const struct cli_context *context, const struct belay_info *info)
{
    return cli_print_line(context, wire_line(wire_lock(info)));
}

int lock_print_grant_json(const struct cli_context *context, const struct belay_info *info,
                          const char *const *keys, size_t n_keys)
{
    json_t *locks;

    if (n_keys == 1) {
        return cli_print_line(context, wire_line(wire_grant(info)));
    }
    if (info->n_joint > 0) {
        return cli_print_line(context, wire_line(wire_grants(info)));
    }
    locks = json_array();
    for (size_t i = 0; i < n_keys; i++) {
        struct belay_info one = *info;

        one.key = (char *)keys[i];
        (void)json_array_append_new(locks, wire_grant(&one));
    }
    return lock_print_locks_json(context, info->lock_id, locks);
}

int lock_print_locks_json(const struct cli_context *context, const char *lock_id, json_t *locks)
{
    return cli_print_line(context,
                          wire_line(json_pack("{s:o, s:o}", "lock_id", wire_text(lock_id), "locks", locks)));
}

/* Those whose lease has not expired. */
static size_t count_active_holders(const struct belay_info *info)
{
    size_t n = 0;

    for (size_t i = 0; i < info->n_holders; i++) {
        n += info->holders[i].status == BELAY_STATUS_ACTIVE;
    }
    return n;
}

void lock_format_mode(struct buf *out, const struct belay_info *info)
{
    if (info->mode == BELAY_SLOTS) {
        buf_addf(out, "%zu/%d slots", count_active_holders(info), info->slots);
    } else if (info->mode == BELAY_SHARED && info->n_holders > 0) {
        buf_addf(out, "%zu shared", count_active_holders(info));
    } else {
        buf_adds(out, belay_mode_name(info->mode));
    }
}

void lock_format_holder(struct buf *out, const struct belay_info *info, size_t i, int64_t now_unix_ms)
{
    const struct belay_info *holder = &info->holders[i];
    char span[CLOCK_TEXT_SIZE];

    buf_addf(out, "%zu. ", i + 1);
    print_holder(out, holder);
    buf_addf(out, ", for %s",
             clock_format_span(span, (now_unix_ms - holder->locked_at_unix_ms) / 1000 * 1000));
    if (holder->status == BELAY_STATUS_ACTIVE) {
        buf_addf(out, ", expires in %s", clock_format_span(span, holder->expires_in_ms));
    } else {
        buf_adds(out, ", expired");
    }
    buf_adds(out, holder->is_stale && holder->status == BELAY_STATUS_ACTIVE ? ", ⚠ STALE" : "");
    if (holder->token != 0) {
        buf_addf(out, ", token %llu", (unsigned long long)holder->token);
    }
    if (holder->lock_id != NULL) {
        buf_adds(out, ", id ");
        escape_text(out, holder->lock_id);
    }
}

void lock_format_state(struct buf *out, const struct belay_info *info)
{
    const char *outcome = belay_outcome_name(info->outcome);

    if (info->status == BELAY_STATUS_ACTIVE && info->is_stale) {
        buf_adds(out, "stale");
        return;
    }
    buf_adds(out, info->status == BELAY_STATUS_NONE ? "none" : belay_status_name(info->status));
    if (outcome != NULL) {
        buf_addf(out, ": %s", outcome);
    }
}

static void print_lock_field(const char *name, const char *text)
{
    print_line_escaped(stdout, "  %-12s%s", name, text);
}

static void print_lease(const struct belay_info *info, int64_t now)
{
    char at[CLOCK_TEXT_SIZE];
    char span[CLOCK_TEXT_SIZE];
    char text[PRINT_TIME_SIZE];

    print_lock_field("Since:", print_ago(text, info->locked_at_unix_ms, now));
    if (info->status == BELAY_STATUS_ACTIVE) {
        (void)snprintf(text, sizeof text, "%s (at %s)", clock_format_span(span, info->expires_in_ms),
                       clock_format_utc(at, info->expires_at_unix_ms, false));
        print_lock_field("Expires in:", text);
    } else if (info->status == BELAY_STATUS_EXPIRED) {
        print_lock_field("Expired:", print_ago(text, info->expires_at_unix_ms, now));
    } else if (info->released_at_unix_ms != 0) {
        print_lock_field("Released:", print_ago(text, info->released_at_unix_ms, now));
    }
    if (info->last_heartbeat_unix_ms != 0) {
        print_lock_field("Heartbeat:", print_ago(text, info->last_heartbeat_unix_ms, now));
    }
}

static void print_status(const struct cli_context *context, const struct belay_info *info)
{
    struct buf state = BUF_INIT(256);

    lock_format_state(&state, info);
    if (info->is_stale && info->status == BELAY_STATUS_ACTIVE) {
        (void)printf("  %-12s%s⚠ STALE%s: the holder has missed its heartbeats\n",
                     "Status:", print_style(context->color_out, "yellow"),
                     print_style(context->color_out, PRINT_RESET));
    } else {
        print_lock_field("Status:", state.failed ? "?" : state.data);
    }
    buf_release(&state);
}

/* True if a lock or a waiter is not exclusive: only then do people need to see which is which. */
static bool has_modes(const struct belay_info *info)
{
    bool found = info->mode != BELAY_EXCLUSIVE;

    for (size_t i = 0; i < info->n_waiters; i++) {
        found = found || info->waiters[i].mode != BELAY_EXCLUSIVE;
    }
    return found;
}

static void print_waiters(const struct belay_info *info, int64_t now)
{
    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *waiter = &info->waiters[i];
        const char *name = *waiter->locked_by_name == '\0' ? waiter->locked_by : waiter->locked_by_name;
        char span[CLOCK_TEXT_SIZE];
        bool is_other = strcmp(waiter->key, info->key) != 0;

        print_line_escaped(stdout, "  %-12s%zu. %s, for %s%s%s%s%s%s", i == 0 ? "Waiting:" : "", i + 1, name,
                           clock_format_span(span, (now - waiter->since_unix_ms) / 1000 * 1000),
                           has_modes(info) ? ", " : "", has_modes(info) ? belay_mode_name(waiter->mode) : "",
                           is_other ? ", for '" : "", is_other ? waiter->key : "", is_other ? "'" : "");
    }
}

static void print_title(const struct cli_context *context, const struct belay_info *info)
{
    (void)fputs(print_style(context->color_out, "bold"), stdout);
    print_escaped(stdout, info->key);
    for (size_t i = 0; i < info->n_joint; i++) {
        (void)fputs(", ", stdout);
        print_escaped(stdout, info->joint[i].key);
    }
    (void)printf("%s\n", print_style(context->color_out, PRINT_RESET));
    print_status(context, info);
}

/* "2 of 3 slots", "shared"; nothing for an exclusive lock. */
static void print_mode(const struct belay_info *info)
{
    if (info->mode == BELAY_SLOTS) {
        (void)printf("  %-12s%zu of %d slots\n", "Mode:", count_active_holders(info), info->slots);
    } else if (info->mode != BELAY_EXCLUSIVE) {
        print_lock_field("Mode:", belay_mode_name(info->mode));
    }
}

static void print_metadata(const char *title, const struct belay_info *info)
{
    for (size_t i = 0; i < info->n_metadata; i++) {
        print_line_escaped(stdout, "  %-12s%s=%s", i == 0 ? title : "", info->metadata[i].name,
                           info->metadata[i].value);
    }
}

static void print_token_line(const char *title, const struct belay_info *info, bool with_key)
{
    if (info->token != 0) {
        print_line_escaped(stdout, "  %-12s%llu%s%s%s", title, (unsigned long long)info->token,
                           with_key ? " for '" : "", with_key ? info->key : "", with_key ? "'" : "");
    }
}

/* The fields of the only holder, or of the caller's own grant. */
static void print_own(const struct belay_info *info, int64_t now)
{
    struct buf holder = BUF_INIT(4096);

    print_holder(&holder, info);
    print_lock_field("Holder:", holder.failed ? "?" : holder.data);
    print_lease(info, now);
    if (info->lock_id != NULL) {
        print_lock_field("Lock id:", info->lock_id);
    }
    print_token_line(info->n_joint > 0 ? "Tokens:" : "Token:", info, info->n_joint > 0);
    for (size_t i = 0; i < info->n_joint; i++) {
        print_token_line("", &info->joint[i], true);
    }
    print_metadata("Metadata:", info);
    buf_release(&holder);
}

static void print_holders(const struct belay_info *info, int64_t now)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        struct buf line = BUF_INIT(1 << 16);

        lock_format_holder(&line, info, i, now);
        (void)printf("  %-12s%s\n", i == 0 ? "Holders:" : "", line.failed ? "?" : line.data);
        print_metadata("", &info->holders[i]);
        buf_release(&line);
    }
}

void lock_print_card(const struct cli_context *context, const struct belay_info *info, bool is_grant)
{
    int64_t now = clock_unix_ms();

    print_title(context, info);
    print_mode(info);
    if (info->n_holders > 0 && !is_grant) {
        print_holders(info, now);
    } else if (is_grant || info->status != BELAY_STATUS_NONE) {
        print_own(info, now);
    }
    print_waiters(info, now);
}

void shell_quote(struct buf *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,=";

    if (*text != '\0' && text[strspn(text, plain)] == '\0') {
        buf_adds(out, text);
        return;
    }
    buf_adds(out, "'");
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            buf_adds(out, "'\\''");
        } else {
            buf_add(out, text, 1);
        }
    }
    buf_adds(out, "'");
}

void lock_format_command(struct buf *out, const struct cli_context *context, const char *verb,
                         const char *const *keys, size_t n_keys, const char *lock_id)
{
    bool is_option = false;

    buf_addf(out, "belay %s ", verb);
    if (context->store_url != NULL) {
        struct buf shown = BUF_INIT(STORE_URL_MAX);

        store_url_add_shown(&shown, context->store_url); /* it goes to terminals, and to the logs of CI */
        buf_adds(out, "--store ");
        shell_quote(out, shown.failed ? "" : text_or_empty(shown.data));
        buf_adds(out, " ");
        buf_release(&shown);
    }
    for (size_t i = 0; i < n_keys; i++) {
        is_option = is_option || keys[i][0] == '-';
    }
    if (is_option) {
        buf_addf(out, "--id %s --", lock_id);
    }
    for (size_t i = 0; i < n_keys; i++) {
        buf_adds(out, i > 0 || is_option ? " " : "");
        shell_quote(out, keys[i]);
    }
    if (!is_option) {
        buf_addf(out, " --id %s", lock_id);
    }
}
