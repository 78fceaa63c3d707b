/* The load: many connections from one thread; it checks every response.
 *
 *   load WORK PORT CONNECTIONS WARM_SECONDS SECONDS HEADS [SIZE [RATE]]
 *
 *   get        requests one after the other on each connection; responses must have SIZE bytes
 *   put        one request after the other, each with a body of SIZE bytes
 *   echo       a WebSocket message of SIZE bytes at a time, which must be returned
 *   frames     receives WebSocket frames of the pattern until the end
 *   handshake  opens a WebSocket, closes it, and repeats: at once, or RATE times a second
 *   rfb        a desktop behind a WebSocket: requests updates and checks the pixels
 *   pointer    the same: requests a small update, moves the pointer, and repeats after the update
 *   idle       opens WebSockets and keeps them until its input ends; prints when each was closed
 *
 * HEADS is a file of request heads, which the connections use in turn. "@@@@@@@@" in them is replaced
 * by another number in every request. The load prints "ready" once all connections are open, "begin"
 * when it begins to measure, and one line of JSON.
 *
 * Compiled with -DTLS it does all of this over TLS 1.3, each connection with a handshake of its own.
 * It does not verify the certificate. */
#include "wire.h"
#ifdef TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#endif

#define MARK "@@@@@@@@"
enum { MAX_HEADS = 16384, MAX_MARKS = 8, MAX_EVENTS = 256, SOURCES = 200, AHEAD = 4 };
enum { MAX_SAMPLES = 1 << 22 };
enum work { GET, PUT, ECHO, FRAMES, HANDSHAKE, RFB, POINTER, IDLE, WORKS };
enum state { CONNECTING, SHAKING, HEAD, BODY, SOCKET, DONE };

static const char *const names[WORKS] = {"get",       "put", "echo",    "frames",
                                         "handshake", "rfb", "pointer", "idle"};

struct head {
    char *text;
    size_t size, marks[MAX_MARKS];
    int count;
};

struct conn {
    int fd, turn;
    enum state state;
    uint64_t began;
    uint64_t to_send, sent; /* of the request's body */
    uint64_t to_come, came; /* of a response's body, or of a frame's payload */
    uint64_t stream;        /* received bytes of RFB */
    bool waits;
    struct piece in;
#ifdef TLS
    SSL *tls;
#endif
};

static struct head heads[MAX_HEADS];
static int head_count, poller, opened, refused, wanted;
static enum work work;
static struct sockaddr_in proxy;
static uint64_t size_wanted, counter, units, bytes, errors;
static char first_error[160];
static uint32_t *samples; /* tenths of microseconds */
static size_t sample_count;
static bool measuring, stopping;
static uint64_t *closed_at;
static size_t closed_count;
static unsigned char *message, *update;
static size_t message_size, update_bytes;
static double rate;
static struct conn **resting;
static int resting_count;

static void begin(struct conn *c);

/* Counting */

static void failed(struct conn *c, const char *what, const unsigned char *data, size_t size) {
    if (stopping)
        return;
    if (!errors++) {
        int written = snprintf(first_error, sizeof first_error, "%s (state %d): ", what, c->state);
        for (size_t i = 0; i < size && i < 60; i++)
            if (data[i] >= ' ' && data[i] < 127 && data[i] != '"' && data[i] != '\\')
                first_error[written++] = (char)data[i];
        first_error[written] = 0;
    }
}

static void counted(struct conn *c) {
    if (!measuring)
        return;
    units++;
    if (sample_count < MAX_SAMPLES)
        samples[sample_count++] = (uint32_t)((now_ns() - c->began) / 100);
}

static void count_bytes(uint64_t size) {
    if (measuring)
        bytes += size;
}

/* The connection itself, with TLS or without */

#ifdef TLS
static SSL_CTX *context;

static void make_context(void) {
    context = SSL_CTX_new(TLS_client_method());
    /* The same for all proxies, whatever each of them prefers. */
    if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") ||
        !SSL_CTX_set1_groups_list(context, "X25519"))
        die("TLS");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
}

/* Return the result of OpenSSL as send and recv would. */
static ssize_t told(struct conn *c, int result) {
    if (result > 0)
        return result;
    int error = SSL_get_error(c->tls, result);
    ERR_clear_error();
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t put(struct conn *c, const void *data, size_t size) {
    ssize_t done = 0;
    while ((size_t)done < size) {
        ssize_t sent = told(c, SSL_write(c->tls, (const char *)data + done, (int)(size - (size_t)done)));
        if (sent <= 0)
            return done ? done : -1;
        done += sent;
    }
    return done;
}

/* Records are 16 KiB at most: several are joined, as in one read without TLS. */
static ssize_t take_conn(struct conn *c, unsigned char **data) {
    size_t before = c->in.size, got = 0;
    if (before > MAX_PENDING)
        return -1;
    if (before)
        memcpy(incoming, c->in.data, before);
    ssize_t last = 0;
    while (got < READ_BYTES &&
           (last = told(c, SSL_read(c->tls, incoming + before + got, (int)(READ_BYTES - got)))) > 0)
        got += (size_t)last;
    if (!got)
        return last < 0 && errno == EAGAIN ? 0 : -1;
    keep(&c->in, NULL, 0);
    *data = incoming;
    return (ssize_t)(before + got);
}

static void close_conn(struct conn *c) {
    SSL_free(c->tls);
    c->tls = NULL;
    close(c->fd);
}
#else
static ssize_t put(struct conn *c, const void *data, size_t size) {
    return send(c->fd, data, size, MSG_NOSIGNAL);
}

static ssize_t take_conn(struct conn *c, unsigned char **data) { return take(c->fd, &c->in, data); }

static void close_conn(struct conn *c) { close(c->fd); }
#endif

/* Sending */

static void watch(struct conn *c, bool waits) {
    if (c->waits == waits)
        return;
    c->waits = waits;
    struct epoll_event event = {.events = EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static bool send_all(struct conn *c, const void *data, size_t size) {
    /* Small messages, at most as many as were answered: they fit into the socket's buffer. */
    return put(c, data, size) == (ssize_t)size;
}

static bool send_head(struct conn *c) {
    static char text[16384];
    struct head *head = &heads[c->turn % head_count];
    memcpy(text, head->text, head->size);
    char number[9];
    snprintf(number, sizeof number, "%08llx", (unsigned long long)(counter++ & 0xffffffffu));
    for (int i = 0; i < head->count; i++)
        memcpy(text + head->marks[i], number, 8);
    c->began = now_ns();
    c->state = HEAD;
    c->to_send = work == PUT ? size_wanted : 0, c->sent = 0;
    return send_all(c, text, head->size);
}

static bool send_body(struct conn *c) {
    while (c->sent < c->to_send) {
        uint64_t size = c->to_send - c->sent < READ_BYTES ? c->to_send - c->sent : READ_BYTES;
        ssize_t sent = put(c, pattern + c->sent % PERIOD, size);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            return false;
        c->sent += (uint64_t)sent;
        count_bytes((uint64_t)sent);
    }
    watch(c, c->sent < c->to_send);
    return true;
}

static bool send_request(struct conn *c) {
    return send_head(c) && (work != PUT || send_body(c));
}

/* A complete frame with a mask. Proxies require the mask; it is the same in all frames. */
static size_t masked(unsigned char *out, unsigned opcode, const unsigned char *data, size_t size) {
    static const unsigned char mask[4] = {0x5a, 0xc3, 0x17, 0x88};
    size_t header = write_frame(out, opcode, size);
    out[1] |= 0x80;
    memcpy(out + header, mask, 4);
    memcpy(out + header + 4, data, size);
    unmask(out + header + 4, size, mask);
    return header + 4 + size;
}

static bool send_frame(struct conn *c, const void *data, size_t size) {
    unsigned char frame[64];
    return send_all(c, frame, masked(frame, 2, data, size));
}

/* RFB: the browser's next message, by how much of the desktop's stream has arrived */

static bool send_ask(struct conn *c) {
    static const unsigned char large[10] = {3, 1, 0, 0, 0, 0, 0, LARGE_SIDE, 0, LARGE_SIDE};
    static const unsigned char small[10] = {3, 1, 0, 0, 0, 0, 0, SMALL_SIDE, 0, SMALL_SIDE};
    if (work == RFB)
        return send_frame(c, large, sizeof large);
    /* Each is a message of its own, as in noVNC. No two moves lead to the same place. */
    unsigned char move[6] = {5, 0, 0, (unsigned char)counter++, 0, 7};
    return send_frame(c, small, sizeof small) && send_frame(c, move, sizeof move);
}

enum { AFTER_VERSION = 12, AFTER_TYPES = 14, AFTER_RESULT = 18 };
enum { AFTER_INIT = AFTER_RESULT + SERVER_INIT_BYTES };

static bool converse(struct conn *c, uint64_t before, uint64_t after) {
    bool good = true;
    if (before < AFTER_VERSION && after >= AFTER_VERSION)
        good = send_frame(c, RFB_VERSION, 12);
    if (before < AFTER_TYPES && after >= AFTER_TYPES)
        good = good && send_frame(c, "\1", 1);
    if (before < AFTER_RESULT && after >= AFTER_RESULT)
        good = good && send_frame(c, "\1", 1);
    if (before < AFTER_INIT && after >= AFTER_INIT)
        for (int i = 0; good && i < (work == RFB ? AHEAD : 1); i++)
            good = send_ask(c);
    if (after <= AFTER_INIT)
        return good;
    uint64_t done = before > AFTER_INIT ? (before - AFTER_INIT) / update_bytes : 0;
    for (; good && done < (after - AFTER_INIT) / update_bytes; done++) {
        counted(c);
        c->began = now_ns();
        good = send_ask(c);
    }
    return good;
}

static bool check_stream(struct conn *c, const unsigned char *data, size_t size) {
    uint64_t before = c->stream;
    c->stream += size;
    for (size_t at = before < AFTER_INIT ? (AFTER_INIT - before < size ? AFTER_INIT - before : size) : 0;
         at < size;) {
        uint64_t place = (before + at - AFTER_INIT) % update_bytes;
        size_t part = update_bytes - place < size - at ? update_bytes - place : size - at;
        if (memcmp(data + at, update + place, part))
            return false;
        at += part;
    }
    count_bytes(size);
    return converse(c, before, c->stream);
}

/* Receiving: each step returns how much it consumed, 0 when it needs more, -1 on a wrong byte */

static bool answer_done(struct conn *c) {
    counted(c);
    return stopping || send_request(c);
}

static bool socket_opened(struct conn *c) {
    c->state = SOCKET;
    if (work == HANDSHAKE)
        counted(c);
    else
        opened++;
    c->began = now_ns();
    return work != ECHO || send_all(c, message, message_size);
}

static ssize_t step_head(struct conn *c, const unsigned char *data, size_t size) {
    size_t end = head_end(data, size);
    if (!end)
        return 0;
    const char *head = (const char *)data;
    if (work > PUT)
        return size >= 12 && memcmp(head, "HTTP/1.1 101", 12) == 0 && socket_opened(c) ? (ssize_t)end : -1;
    const char *length = field(head, end, "Content-Length");
    if (memcmp(head, "HTTP/1.1 200", 12) || !length)
        return -1;
    c->to_come = strtoull(length, NULL, 10), c->came = 0;
    if (c->to_come != (work == PUT ? 2 : size_wanted))
        return -1;
    c->state = BODY;
    return (ssize_t)end;
}

static ssize_t step_body(struct conn *c, const unsigned char *data, size_t size) {
    if (size > c->to_come - c->came)
        size = c->to_come - c->came;
    bool good = work == PUT ? memcmp(data, "ok" + c->came, size) == 0 : true;
    for (size_t at = 0; work == GET && good && at < size; at += READ_BYTES)
        good = is_pattern(data + at, size - at < READ_BYTES ? size - at : READ_BYTES, c->came + at);
    if (!good)
        return -1;
    c->came += size;
    if (work == GET)
        count_bytes(size);
    if (c->came == c->to_come && !answer_done(c))
        return -1;
    return (ssize_t)size;
}

static ssize_t step_echo(struct conn *c, const unsigned char *data, size_t size) {
    struct frame frame;
    if (!read_frame(data, size, &frame) || size < frame.header + frame.length)
        return 0;
    if (frame.opcode == 9)
        return (ssize_t)(frame.header + frame.length);
    if (frame.length != size_wanted || memcmp(data + frame.header, pattern, frame.length))
        return -1;
    counted(c);
    c->began = now_ns();
    if (!stopping && !send_all(c, message, message_size))
        return -1;
    return (ssize_t)(frame.header + frame.length);
}

/* Frames of any size, checked as they arrive. */
static ssize_t step_frames(struct conn *c, const unsigned char *data, size_t size) {
    if (c->came == c->to_come) {
        struct frame frame;
        if (!read_frame(data, size, &frame))
            return 0;
        c->to_come = frame.opcode < 8 ? frame.length : 0, c->came = 0;
        return frame.opcode < 8 ? (ssize_t)frame.header
                                : size < frame.header + frame.length ? 0 : (ssize_t)(frame.header + frame.length);
    }
    if (size > c->to_come - c->came)
        size = c->to_come - c->came;
    if (size > READ_BYTES)
        size = READ_BYTES;
    bool good = work != FRAMES ? check_stream(c, data, size) : is_pattern(data, size, c->came);
    c->came += size;
    if (work == FRAMES) {
        count_bytes(size);
        if (c->came == c->to_come)
            counted(c), c->began = now_ns();
    }
    return good ? (ssize_t)size : -1;
}

static ssize_t step(struct conn *c, const unsigned char *data, size_t size) {
    if (c->state == HEAD)
        return step_head(c, data, size);
    if (c->state == BODY)
        return step_body(c, data, size);
    if (work == ECHO)
        return step_echo(c, data, size);
    if (work == FRAMES || work == RFB || work == POINTER)
        return step_frames(c, data, size);
    return (ssize_t)size; /* idle: a ping, or a Close before the end */
}

static void end(struct conn *c) {
    close_conn(c);
    keep(&c->in, NULL, 0);
    if (c->state <= HEAD)
        refused++;
    c->state = DONE;
    if (work == IDLE && closed_count < (size_t)wanted)
        closed_at[closed_count++] = now_ns();
}

static bool readable(struct conn *c) {
    unsigned char *data;
    ssize_t size = take_conn(c, &data);
    if (size == 0)
        return true;
    if (size < 0) {
        if (work != IDLE)
            failed(c, "closed", NULL, 0);
        return false;
    }
    while (size > 0) {
        ssize_t taken = step(c, data, (size_t)size);
        if (taken < 0) {
            failed(c, "wrong", data, (size_t)size);
            return false;
        }
        if (taken == 0)
            break;
        data += taken, size -= taken;
        if (work == IDLE && c->state == SOCKET && size >= 2 && (data[0] & 0x0f) == 8)
            return false;
    }
    keep(&c->in, data, (size_t)size);
    if (work == HANDSHAKE && c->state == SOCKET) {
        close_conn(c);
        keep(&c->in, NULL, 0);
        c->state = DONE;
        if (rate > 0)
            resting[resting_count++] = c;
        else
            begin(c);
    }
    return true;
}

/* Connections */

static void begin(struct conn *c) {
    static unsigned source;
    struct sockaddr_in from = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        die("socket");
    /* Many addresses, because one has too few ports. */
    from.sin_addr.s_addr = htonl(0x7f010001u + (source++ % SOURCES));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&from, sizeof from))
        die("bind");
    no_delay(fd);
    if (connect(fd, (struct sockaddr *)&proxy, sizeof proxy) && errno != EINPROGRESS)
        die("connect");
    *c = (struct conn){.fd = fd, .turn = c->turn, .state = CONNECTING, .waits = true};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

#ifdef TLS
/* Continue the handshake; the request follows it. */
static bool shake(struct conn *c) {
    if (!c->tls) {
        c->tls = SSL_new(context);
        if (!c->tls || !SSL_set_fd(c->tls, c->fd))
            die("TLS");
    }
    c->state = SHAKING;
    int done = SSL_connect(c->tls);
    if (done == 1)
        return watch(c, false), send_request(c);
    int error = SSL_get_error(c->tls, done);
    watch(c, error == SSL_ERROR_WANT_WRITE);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}
#endif

static bool writable(struct conn *c) {
    if (c->state != CONNECTING)
        return send_body(c);
    watch(c, false);
#ifdef TLS
    return shake(c);
#else
    return send_request(c);
#endif
}

static void handle(struct epoll_event *event) {
    struct conn *c = event->data.ptr;
    if (c->state == DONE)
        return;
#ifdef TLS
    if (c->state == SHAKING) {
        if (!shake(c)) {
            failed(c, "no TLS", NULL, 0);
            end(c);
        }
        return;
    }
#endif
    bool good = !(event->events & EPOLLOUT) || writable(c);
    if (!good)
        failed(c, "not sent", NULL, 0);
    if (good && event->events & ~(uint32_t)EPOLLOUT)
        good = readable(c);
    if (!good)
        end(c);
}

static bool turn(int milliseconds) {
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_wait(poller, events, MAX_EVENTS, milliseconds);
    for (int i = 0; i < count; i++) {
        if (!events[i].data.ptr)
            return false;
        handle(&events[i]);
    }
    return true;
}

static void run_for(double seconds) {
    uint64_t start = now_ns(), until = start + (uint64_t)(seconds * 1e9), now, begun = 0;
    while ((now = now_ns()) < until) {
        while (resting_count && (double)begun < rate * (double)(now - start) / 1e9) {
            begin(resting[--resting_count]);
            begun++;
        }
        turn(rate > 0 ? 2 : 10);
    }
}

/* Sockets are opened in groups: a listener's backlog is not measured. */
static void open_all(struct conn *conns) {
    int begun = 0;
    uint64_t until = now_ns() + 120000000000u;
    bool counts = work > PUT && work != HANDSHAKE;
    while ((begun < wanted || (counts && opened + refused < wanted)) && now_ns() < until) {
        while (begun < wanted && (!counts || begun < opened + refused + 128)) {
            conns[begun].turn = begun;
            begin(&conns[begun++]);
        }
        turn(10);
    }
}

/* Reporting */

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    if (!sample_count)
        return 0;
    size_t at = (size_t)(part * (double)sample_count);
    return samples[at < sample_count ? at : sample_count - 1] / 10.0;
}

static void report(double seconds, double busy) {
    qsort(samples, sample_count, sizeof *samples, by_size);
    printf("{\"units\":%llu,\"bytes\":%llu,\"seconds\":%.6f,\"errors\":%llu,\"opened\":%d,",
           (unsigned long long)units, (unsigned long long)bytes, seconds, (unsigned long long)errors,
           opened);
    printf("\"load_cpu_seconds\":%.6f,\"first_error\":\"%s\",", busy, first_error);
    printf("\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"closed_at\":[", percentile(.5),
           percentile(.99), percentile(.999));
    for (size_t i = 0; i < closed_count; i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)closed_at[i]);
    printf("]}\n");
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

static void wait_for_input_to_end(void) {
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &event);
    while (turn(-1))
        ;
    stopping = true;
}

static void measure(double warm_seconds, double seconds) {
    run_for(warm_seconds);
    say("begin");
    uint64_t began = now_ns();
    double busy = cpu();
    measuring = true;
    run_for(seconds);
    measuring = false;
    report((double)(now_ns() - began) / 1e9, cpu() - busy);
}

static void read_heads(const char *path) {
    FILE *file = fopen(path, "rb");
    static char text[1 << 24];
    if (!file)
        die(path);
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (char *at = text; at < text + size && head_count < MAX_HEADS;) {
        struct head *head = &heads[head_count++];
        head->text = at;
        head->size = head_end((unsigned char *)at, (size_t)(text + size - at));
        if (!head->size)
            die("a head does not end");
        for (char *mark = at; (mark = memmem(mark, (size_t)(at + head->size - mark), MARK, 8)) &&
                              head->count < MAX_MARKS;
             mark += 8)
            head->marks[head->count++] = (size_t)(mark - at);
        at += head->size;
    }
}

int main(int argc, char **argv) {
    if (argc < 7)
        return 2;
    while (work < WORKS && strcmp(names[work], argv[1]))
        work++;
    if (work == WORKS)
        return 2;
    raise_limits();
#ifdef TLS
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
    make_context();
#endif
    make_pattern();
    read_heads(argv[6]);
    wanted = atoi(argv[3]);
    size_wanted = argc > 7 ? strtoull(argv[7], NULL, 10) : 0;
    rate = argc > 8 ? atof(argv[8]) : 0;
    resting = malloc((size_t)wanted * sizeof *resting);
    samples = malloc(MAX_SAMPLES * sizeof *samples);
    closed_at = malloc((size_t)wanted * sizeof *closed_at);
    update = make_update(work == POINTER ? SMALL_SIDE : LARGE_SIDE);
    update_bytes = UPDATE_BYTES(work == POINTER ? SMALL_SIDE : LARGE_SIDE);
    if (work == ECHO) {
        message = malloc(size_wanted + 14);
        message_size = masked(message, 2, pattern, size_wanted);
    }
    proxy = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)atoi(argv[2]))};
    poller = epoll_create1(EPOLL_CLOEXEC);
    open_all(calloc((size_t)wanted, sizeof(struct conn)));
    say("ready");
    if (work == IDLE) {
        wait_for_input_to_end();
        report(0, 0);
    } else {
        measure(atof(argv[4]), atof(argv[5]));
    }
    return 0;
}
