/* What swarm.c and speech.c share: a phone, and what is done with what it gets. */
#include <stddef.h>
#include <stdint.h>

enum state { SHUT, CONNECTING, OPENING, LIVE };

struct phone {
    int fd, group;
    enum state state;
    char *first, *again; /* words of its first connection, and of a later one */
    uint64_t number, seq;
    char *left; /* an incomplete message */
    size_t left_size;
};

struct speech { /* a protocol */
    void (*greet)(struct phone *); /* once connected */
    size_t (*take)(struct phone *, char *, size_t); /* one message's size; 0: incomplete */
    void (*done)(void); /* after all messages of a read */
};

extern const struct speech ws, mqtt, jetstream, jetstream_none;

/* of swarm.c */
extern int port;
void answer(const void *data, size_t size); /* to be sent after this read */
void event(struct phone *p, const char *text, size_t size);
void served(struct phone *p);
void fail(struct phone *p, const char *what);
