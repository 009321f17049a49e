#include "cli/core/lock_print.h"

#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"
#include "json/json_write.h"

int lock_print_json(const struct cli_context *context, const struct belay_info *info)
{
    return cli_print_line(context, wire_line(wire_lock(info)));
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
    (void)printf("  %-12s", name);
    print_escaped(stdout, text);
    (void)putchar('\n');
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

static void print_waiters(const struct belay_info *info, int64_t now)
{
    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *waiter = &info->waiters[i];
        const char *name = *waiter->locked_by_name == '\0' ? waiter->locked_by : waiter->locked_by_name;
        char span[CLOCK_TEXT_SIZE];

        (void)printf("  %-12s%zu. ", i == 0 ? "Waiting:" : "", i + 1);
        print_escaped(stdout, name);
        (void)printf(", for %s", clock_format_span(span, (now - waiter->since_unix_ms) / 1000 * 1000));
        if (strcmp(waiter->key, info->key) != 0) {
            (void)fputs(", for '", stdout);
            print_escaped(stdout, waiter->key);
            (void)putchar('\'');
        }
        (void)putchar('\n');
    }
}

void lock_print_card(const struct cli_context *context, const struct belay_info *info)
{
    struct buf holder = BUF_INIT(4096);
    int64_t now = clock_unix_ms();

    (void)fputs(print_style(context->color_out, "bold"), stdout);
    print_escaped(stdout, info->key);
    (void)printf("%s\n", print_style(context->color_out, PRINT_RESET));
    print_status(context, info);
    print_holder(&holder, info);
    print_lock_field("Holder:", holder.failed ? "?" : holder.data);
    print_lease(info, now);
    if (info->lock_id != NULL) {
        print_lock_field("Lock id:", info->lock_id);
    }
    if (info->token != 0) {
        (void)printf("  %-12s%llu\n", "Token:", (unsigned long long)info->token);
    }
    for (size_t i = 0; i < info->n_metadata; i++) {
        (void)printf("  %-12s", i == 0 ? "Metadata:" : "");
        print_escaped(stdout, info->metadata[i].name);
        (void)putchar('=');
        print_escaped(stdout, info->metadata[i].value);
        (void)putchar('\n');
    }
    print_waiters(info, now);
    buf_release(&holder);
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
                         const char *key, const char *lock_id)
{
    buf_addf(out, "belay %s ", verb);
    if (context->store_url != NULL) {
        buf_adds(out, "--store ");
        shell_quote(out, context->store_url);
        buf_adds(out, " ");
    }
    if (key[0] == '-') {
        buf_addf(out, "--id %s -- ", lock_id);
        shell_quote(out, key);
        return;
    }
    shell_quote(out, key);
    buf_addf(out, " --id %s", lock_id);
}
