#include "server/webhooks/outgoing.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "server/webhooks/webhooks.h"

/* "t=UNIX_SECONDS,v1=HMAC". The time is signed too, so that an old call cannot be replayed. */
static bool sign_outgoing(struct outgoing *outgoing, const char *secret)
{
    struct buf text = BUF_INIT(16 << 20);
    unsigned char mac[EVP_MAX_MD_SIZE];
    char hex[2 * sizeof mac + 1];
    unsigned mac_len = 0;
    long long now_s = (long long)(clock_unix_ms() / 1000);

    buf_addf(&text, "%lld.%s", now_s, outgoing->body);
    if (text.failed || HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)text.data,
                            text.len, mac, &mac_len) == NULL) {
        buf_release(&text);
        return false;
    }
    buf_release(&text);
    text_hex(hex, mac, mac_len);
    (void)snprintf(outgoing->signature, sizeof outgoing->signature, "t=%lld,v1=%s", now_s, hex);
    return true;
}

bool outgoing_prepare(struct outgoing *outgoing, const struct outgoing_call *call,
                      const struct webhook_settings *settings, struct belay_cancel *cancel)
{
    struct belay_meta *headers = outgoing->headers;
    size_t n = 0;

    assert(call->url != NULL && call->secret != NULL && call->attempt > 0);
    if (outgoing->body == NULL || (*call->secret != '\0' && !sign_outgoing(outgoing, call->secret))) {
        return false;
    }
    (void)snprintf(outgoing->attempt_text, sizeof outgoing->attempt_text, "%d", call->attempt);
    headers[n++] = (struct belay_meta){ "Content-Type", "application/json" };
    headers[n++] = (struct belay_meta){ "Belay-Event", call->event };
    headers[n++] = (struct belay_meta){ "Belay-Attempt", outgoing->attempt_text };
    if (call->delivery_id != NULL) {
        headers[n++] = (struct belay_meta){ "Belay-Delivery", call->delivery_id };
    }
    if (*call->secret != '\0') {
        headers[n++] = (struct belay_meta){ "Belay-Signature", outgoing->signature };
    }
    assert(n <= sizeof outgoing->headers / sizeof outgoing->headers[0]);
    outgoing->post = (struct belay_http_post)BELAY_HTTP_POST_INIT;
    outgoing->post.url = call->url;
    outgoing->post.headers = headers;
    outgoing->post.n_headers = n;
    outgoing->post.body = outgoing->body;
    outgoing->post.body_len = strlen(outgoing->body);
    outgoing->post.timeout_ms = call->timeout_ms;
    outgoing->post.allow = settings->allow_texts;
    outgoing->post.n_allow = settings->n_allow;
    outgoing->post.ca_file = settings->ca_file;
    outgoing->post.cancel = cancel;
    return true;
}

void outgoing_send(struct outgoing *outgoing)
{
    outgoing->status = 0;
    outgoing->code = belay_http_post(&outgoing->post, &outgoing->status, &outgoing->err);
}

void outgoing_release(struct outgoing *outgoing)
{
    free(outgoing->body);
    outgoing->body = NULL;
    belay_error_release(&outgoing->err);
}

bool outgoing_is_accepted(const struct outgoing *outgoing)
{
    return outgoing->code == BELAY_OK && outgoing->status >= 200 && outgoing->status < 300;
}

bool outgoing_is_worth_another(const struct outgoing *outgoing)
{
    if (outgoing->code == BELAY_OK) {
        return outgoing->status >= 500 || outgoing->status == 408 || outgoing->status == 425 ||
               outgoing->status == 429;
    }
    return outgoing->code != BELAY_NOT_PERMITTED && outgoing->code != BELAY_CONFIG &&
           outgoing->code != BELAY_INVALID;
}

char *outgoing_why(const struct outgoing *outgoing, char out[OUTGOING_WHY_SIZE])
{
    if (outgoing->code == BELAY_OK) {
        (void)snprintf(out, OUTGOING_WHY_SIZE, "answered %d", outgoing->status);
    } else {
        (void)snprintf(out, OUTGOING_WHY_SIZE, "%.120s", outgoing->err.text);
    }
    return out;
}
