/* The three protocols that the phones of swarm.c speak. */
#define _GNU_SOURCE
#include "swarm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 4096 };

/* ── WebSocket ─────────────────────────────────────────────────────────── */

static void ws_frame(const char *text, size_t size) { /* masked with zeros, as a client must */
    unsigned char head[8] = {0x81, 0x80 | (unsigned char)size};
    size_t used = 2;
    if (size > 125) {
        head[1] = 0x80 | 126, head[2] = (unsigned char)(size >> 8), head[3] = (unsigned char)size;
        used = 4;
    }
    answer(head, used);
    answer("\0\0\0\0", 4);
    answer(text, size);
}

static void words(struct phone *p, char *out) {
    const char *text = p->seq && *p->again ? p->again : p->first, *hole = strchr(text, '?');
    if (hole)
        snprintf(out, WORDS, "%.*s%llu%s", (int)(hole - text), text, (unsigned long long)p->seq,
                 hole + 1);
    else
        snprintf(out, WORDS, "%s", text);
}

static void ws_greet(struct phone *p) {
    (void)p;
    char out[512];
    answer(out, (size_t)snprintf(out, sizeof out,
        "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", port));
}

static void ws_text(struct phone *p, const char *text, size_t size) {
    static const char pong[] = "{\"v\":1,\"type\":\"pong\",\"payload\":{}}";
    if (p->state == LIVE)
        event(p, text, size);
    else if (size > 120 && memmem(text, 120, "\"error\"", 7))
        fail(p, "refused");
    if (memmem(text, size < 120 ? size : 120, "\"type\":\"ping\"", 13))
        ws_frame(pong, sizeof pong - 1);
    served(p);
}

static size_t ws_take(struct phone *p, char *data, size_t size) {
    if (p->state == OPENING && size && *data == 'H') {
        char *end = memmem(data, size, "\r\n\r\n", 4), out[WORDS];
        if (!end) return 0;
        if (memcmp(data, "HTTP/1.1 101", 12)) fail(p, "no upgrade");
        words(p, out);
        ws_frame(out, strlen(out));
        return (size_t)(end + 4 - data);
    }
    const unsigned char *head = (unsigned char *)data;
    if (size < 2) return 0;
    size_t used = 2, length = head[1] & 127;
    if (length >= 126) {
        int more = length == 126 ? 2 : 8;
        if (size < used + (size_t)more) return 0;
        for (length = 0; more--; used++) length = length << 8 | head[used];
    }
    if (size < used + length) return 0;
    if (head[0] == 0x81)
        ws_text(p, data + used, length);
    else if (head[0] == 0x88) {
        char why[64];
        snprintf(why, sizeof why, "closed with %d",
                 length < 2 ? 1005 : head[used] << 8 | head[used + 1]);
        fail(p, why);
    }
    return used + length;
}

/* ── MQTT 3.1.1, QoS 1, persistent session; the words are the client id ─── */

static void mqtt_greet(struct phone *p) {
    size_t size = strlen(p->first);
    char head[] = {0x10, (char)(12 + size), 0, 4, 'M', 'Q', 'T', 'T', 4, 0, 0, 0, 0, (char)size};
    answer(head, sizeof head);
    answer(p->first, size);
}

static size_t mqtt_take(struct phone *p, char *data, size_t size) {
    static const char subscribe[] = {(char)0x82, 6, 0, 1, 0, 1, 'e', 1};
    const unsigned char *head = (unsigned char *)data;
    size_t used = 1, length = 0;
    for (int shift = 0;; shift += 7) {
        if (used >= size) return 0;
        length |= (size_t)(head[used] & 127) << shift;
        if (!(head[used++] & 128)) break;
    }
    if (size < used + length) return 0;
    const unsigned char *body = head + used;
    if (head[0] >> 4 == 3) {
        size_t topic = (size_t)(body[0] << 8 | body[1]);
        unsigned char ack[] = {0x40, 2, body[2 + topic], body[3 + topic]};
        event(p, (char *)body + topic + 4, length - topic - 4);
        answer(ack, sizeof ack);
    } else if (head[0] == 0x20 && body[1])
        fail(p, "refused");
    else if (head[0] == 0x20 && !body[0])
        answer(subscribe, sizeof subscribe);
    else
        served(p); /* SUBACK, or CONNACK of a session that is known */
    return used + length;
}

/* ── NATS, a JetStream push consumer; the words are its delivery subject ── */

static const char *nats_reply; /* acknowledges all up to the last message (AckAll), or is not used */
static size_t nats_reply_size;

static void nats_greet(struct phone *p) { (void)p; /* the server speaks first */ }

static void nats_done(void) {
    if (!nats_reply) return;
    answer("PUB ", 4), answer(nats_reply, nats_reply_size), answer(" 0\r\n\r\n", 6);
    nats_reply = NULL;
}

static size_t nats_take(struct phone *p, char *data, size_t size) {
    char *end = memmem(data, size < 1024 * 1024 ? size : 1024 * 1024, "\r\n", 2);
    if (!end) return 0;
    size_t line = (size_t)(end + 2 - data);
    if (*data == 'M') { /* MSG subject sid reply size */
        char *at = end, *reply;
        while (at[-1] != ' ') at--;
        size_t length = strtoul(at, NULL, 10);
        if (size < line + length + 2) return 0;
        reply = --at;
        while (reply[-1] != ' ') reply--;
        nats_reply = reply, nats_reply_size = (size_t)(at - reply);
        event(p, end + 2, length);
        return line + length + 2;
    }
    if (!strncmp(data, "INFO", 4)) {
        char out[WORDS];
        answer(out, (size_t)snprintf(out, sizeof out,
            "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB %s 1\r\nPING\r\n", p->first));
    } else if (!strncmp(data, "PONG", 4))
        served(p);
    else if (!strncmp(data, "PING", 4))
        answer("PONG\r\n", 6);
    else if (*data == '-')
        *end = 0, fail(p, data);
    return line;
}

static void nothing(void) {}

const struct speech ws = {ws_greet, ws_take, nothing};
const struct speech mqtt = {mqtt_greet, mqtt_take, nothing};
const struct speech jetstream = {nats_greet, nats_take, nats_done};
const struct speech jetstream_none = {nats_greet, nats_take, nothing};
