/* A thousand phones in one thread: the load client of tests.bench, driven by swarm.py. What they
   speak is in speech.c.

   swarm PROTOCOL PORT PLAN: PROTOCOL is ws, mqtt, jetstream or jetstream-none; each line of
   the file PLAN is a phone, "group TAB first words TAB words of a later connection", group 0 or 1.
   A "?" in the words is replaced by the last seq. Commands on stdin, each answered by one line of JSON:
     open A B      connect the phones A to B-1, all at once; answered when all are served
     shut A B      close their connections
     clear EVERY   forget all figures; of each EVERY-th message the latency is kept from now on
     until A B N S when each of them has event N, or S seconds have passed
   Every message is taken apart and its number checked: it must follow the last one of its phone.
   An event is a text with "@NNNNNNNNNN.TTTTTTTTTTTTTTTTTTT": its number and when it was
   published, in ns of CLOCK_MONOTONIC. MQTT publications and JetStream messages are acknowledged,
   those of one read together. */
#define _GNU_SOURCE
#include "swarm.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, READ = 256 << 10, SAMPLES = 4 << 20, MARK = 31 };
struct goal { /* what a command waits for */
    int asked, from, to, waiting;
    uint64_t number, deadline;
};

static struct phone *phones;
static int phone_count, poller, broken;
int port;
static struct goal opening, arrival;
static uint64_t now, last_at, messages, bytes, reads, wrong, every = 1, cpu_before;
static uint32_t *samples[2];
static size_t sampled[2];
static char trouble[256];
static char buffer[BUFFER], answers[BUFFER];
static size_t answers_size;
static const struct speech *speech;
static const struct { const char *name; const struct speech *speech; } speeches[] = {
    {"ws", &ws}, {"mqtt", &mqtt}, {"jetstream", &jetstream}, {"jetstream-none", &jetstream_none},
};

static uint64_t clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t digits(const char *text, int count) {
    uint64_t value = 0;
    while (count-- > 0) value = value * 10 + (uint64_t)(*text++ - '0');
    return value;
}

void fail(struct phone *p, const char *what) {
    broken++;
    if (*trouble) return;
    snprintf(trouble, sizeof trouble, "phone %d: %.200s", (int)(p - phones), what);
    for (char *c = trouble; *c; c++)
        if (*c < ' ' || *c == '"' || *c == '\\') *c = '\'';
}

void answer(const void *data, size_t size) { /* sent at the end of the read */
    if (answers_size + size <= sizeof answers) {
        memcpy(answers + answers_size, data, size);
        answers_size += size;
    }
}

static int among(struct goal *goal, struct phone *p) {
    int i = (int)(p - phones);
    return goal->asked && goal->from <= i && i < goal->to;
}

void served(struct phone *p) {
    if (p->state == LIVE) return;
    p->state = LIVE;
    if (among(&opening, p)) opening.waiting--;
}

void event(struct phone *p, const char *text, size_t size) {
    const char *mark = memchr(text, '@', size);
    if (!mark || text + size - mark < MARK) return;
    uint64_t number = digits(mark + 1, 10);
    if (number != p->number + 1 && !wrong++)
        snprintf(trouble, sizeof trouble, "phone %d: %llu after %llu", (int)(p - phones),
                 (unsigned long long)number, (unsigned long long)p->number);
    p->number = number;
    p->seq = strtoull(text + sizeof "{\"v\":1,\"seq\":" - 1, NULL, 10);
    size_t *have = &sampled[p->group];
    if (messages++ % every == 0 && *have < SAMPLES)
        samples[p->group][(*have)++] = (uint32_t)((now - digits(mark + 12, 19)) / 1000);
    if (among(&arrival, p) && number == arrival.number) arrival.waiting--;
}

/* ── connections ───────────────────────────────────────────────────────── */

static void speak(struct phone *p) {
    if (answers_size && send(p->fd, answers, answers_size, MSG_NOSIGNAL) != (ssize_t)answers_size)
        fail(p, "cannot send");
    answers_size = 0;
}

static void start(struct phone *p) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(p->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)
        fail(p, strerror(errno));
    p->state = CONNECTING;
    struct epoll_event wish = {.events = EPOLLOUT, .data.ptr = p};
    epoll_ctl(poller, EPOLL_CTL_ADD, p->fd, &wish);
}

static void stop(struct phone *p) {
    if (p->state != SHUT) close(p->fd);
    p->state = SHUT;
    p->left_size = 0;
}

static void connected(struct phone *p) {
    int error = 0;
    getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    if (error) {
        fail(p, strerror(error));
        stop(p);
        return;
    }
    struct epoll_event wish = {.events = EPOLLIN, .data.ptr = p};
    epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &wish);
    p->state = OPENING;
    speech->greet(p);
    speak(p);
}

static void receive(struct phone *p) {
    memcpy(buffer, p->left, p->left_size);
    ssize_t got = recv(p->fd, buffer + p->left_size, READ, 0);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        fail(p, got ? strerror(errno) : "connection ended");
        stop(p);
        return;
    }
    now = last_at = clock_ns(CLOCK_MONOTONIC);
    reads++, bytes += (uint64_t)got;
    char *at = buffer;
    size_t size = p->left_size + (size_t)got, used;
    for (; size && (used = speech->take(p, at, size)); at += used) size -= used;
    if (size > BUFFER - READ) fail(p, "a message too large"), size = 0;
    speech->done();
    speak(p);
    if (size) p->left = realloc(p->left, size), memcpy(p->left, at, size);
    p->left_size = size;
}

/* ── commands ──────────────────────────────────────────────────────────── */

static uint64_t cpu_us(void) {
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000;
}

static void clear(void) {
    messages = bytes = reads = wrong = sampled[0] = sampled[1] = 0;
    cpu_before = cpu_us();
}

static int rising(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, int ok) {
    printf("{\"%s\": %s, \"at\": %llu, \"messages\": %llu, \"bytes\": %llu, \"reads\": %llu, "
           "\"wrong\": %llu, \"cpu_us\": %llu, \"trouble\": \"%s\", \"latency_us\": [",
           what, ok ? "true" : "false", (unsigned long long)last_at, (unsigned long long)messages,
           (unsigned long long)bytes, (unsigned long long)reads, (unsigned long long)wrong,
           (unsigned long long)(cpu_us() - cpu_before), trouble);
    for (int i = 0; i < 2; i++) {
        size_t n = sampled[i];
        qsort(samples[i], n, sizeof(uint32_t), rising);
        printf("%s{\"count\": %zu", i ? ", " : "", n);
        if (n)
            printf(", \"p50\": %u, \"p99\": %u, \"max\": %u", samples[i][n / 2],
                   samples[i][n * 99 / 100], samples[i][n - 1]);
        printf("}");
    }
    printf("]}\n");
    fflush(stdout);
    *trouble = 0;
}

static void command(const char *line) {
    int from = 0, to = 0;
    double seconds = 0;
    unsigned long long n = 0;
    if (sscanf(line, "open %d %d", &from, &to) == 2) {
        opening = (struct goal){1, from, to, to - from, 0, clock_ns(CLOCK_MONOTONIC) + 60000000000ull};
        broken = 0;
        for (int i = from; i < to; i++) start(&phones[i]);
    } else if (sscanf(line, "until %d %d %llu %lf", &from, &to, &n, &seconds) == 4) {
        uint64_t deadline = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
        arrival = (struct goal){1, from, to, 0, n, deadline};
        for (int i = from; i < to; i++) arrival.waiting += phones[i].number < n;
    } else if (sscanf(line, "shut %d %d", &from, &to) == 2) {
        for (int i = from; i < to; i++) stop(&phones[i]);
        tell("shut", 1);
    } else if (sscanf(line, "clear %llu", &n) == 1) {
        every = n;
        clear();
        tell("clear", 1);
    }
}

static void reached(struct goal *goal, const char *what) {
    if (!goal->asked) return;
    int ok = goal->waiting <= 0;
    if (!ok && !broken && clock_ns(CLOCK_MONOTONIC) < goal->deadline) return;
    goal->asked = 0;
    tell(what, ok && !broken);
}

static void commands(void) {
    static char line[256];
    static size_t used;
    ssize_t got = read(0, line + used, sizeof line - 1 - used);
    if (got <= 0) exit(0);
    used += (size_t)got;
    line[used] = 0;
    for (char *end; (end = strchr(line, '\n'));) {
        *end = 0;
        command(line);
        used -= (size_t)(end + 1 - line);
        memmove(line, end + 1, used + 1);
    }
}

static void load(const char *path) {
    static char line[16 << 10];
    FILE *plan = fopen(path, "r");
    if (!plan) exit(2);
    while (fgets(line, sizeof line, plan)) {
        phones = realloc(phones, sizeof *phones * (size_t)(phone_count + 1));
        struct phone *p = &phones[phone_count++];
        memset(p, 0, sizeof *p);
        p->group = *line == '1';
        char *first = strtok(line + 2, "\t\n"), *again = strtok(NULL, "\t\n");
        p->first = strdup(first);
        p->again = strdup(again ? again : "");
        p->left = malloc(1);
    }
    fclose(plan);
}

int main(int count, char **argument) {
    if (count != 4) return 2;
    for (size_t i = 0; i < sizeof speeches / sizeof *speeches; i++)
        if (!strcmp(argument[1], speeches[i].name)) speech = speeches[i].speech;
    if (!speech) return 2;
    port = atoi(argument[2]);
    load(argument[3]);
    for (int i = 0; i < 2; i++) samples[i] = malloc(sizeof(uint32_t) * SAMPLES);
    poller = epoll_create1(0);
    struct epoll_event wish = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &wish);
    clear();
    for (;;) {
        int n = epoll_wait(poller, ready, 256, 100);
        for (int i = 0; i < n; i++) {
            struct phone *p = ready[i].data.ptr;
            if (!p)
                commands();
            else if (p->state == CONNECTING)
                connected(p);
            else if (p->state != SHUT)
                receive(p);
        }
        reached(&opening, "open");
        reached(&arrival, "until");
    }
}
