/* The wall clock of one process, moved by the file through which a fault skews a node's clock, and reported.
 *
 *     LD_PRELOAD=wall_clock.so LASTSTAND_SKEW=/log/skew LASTSTAND_CLOCK_EVENTS=/log/events.jsonl LASTSTAND_NODE=b1 PROGRAM
 *
 * The file has three little-endian 64-bit numbers: base_ns (CLOCK_MONOTONIC), offset_ns, and rate_ppb (how much too
 * fast the clock runs from base_ns on). It is mapped into memory, so the next reading of the clock sees a change.
 *
 * Only CLOCK_REALTIME moves. Monotonic time, sleeps and timers stay as they are: libfaketime changes them too, and a
 * JVM under it spins or stands still. A wait for a moment of the wall clock (a condition variable that follows
 * CLOCK_REALTIME) ends when the process's own wall clock shows that moment.
 *
 * A thread writes what this process's clocks show, ten times a second, as lines of a node's event log: the proof that
 * the clock moved comes from the process itself. Without the variables nothing is moved and nothing is written.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL
#define SKEW_BYTES 24
#define REPORT_EVERY_NS 100000000L

static const volatile int64_t *skew;
static int (*next_gettime)(clockid_t, struct timespec *);
static int (*next_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int events = -1;
static char node[64];

static int64_t nanoseconds(const struct timespec *t) { return t->tv_sec * BILLION + t->tv_nsec; }

static int true_time(clockid_t id, struct timespec *t) {
    /* Before the constructor has run, and for a program that is linked statically in part. */
    return next_gettime ? next_gettime(id, t) : (int)syscall(SYS_clock_gettime, id, t);
}

/* The writer replaces all three numbers at once; a reader may see some of them, so it reads until two readings agree. */
static int64_t ahead_ns(void) {
    if (!skew) return 0;
    int64_t base, offset, rate;
    do {
        base = skew[0];
        offset = skew[1];
        rate = skew[2];
    } while (base != skew[0] || offset != skew[1] || rate != skew[2]);
    if (!rate) return offset;
    struct timespec now;
    true_time(CLOCK_MONOTONIC, &now);
    return offset + (int64_t)((__int128)(nanoseconds(&now) - base) * rate / BILLION);
}

static void move(struct timespec *t, int64_t by_ns) {
    int64_t ns = nanoseconds(t) + by_ns;
    if (ns < 0) ns = 0;
    t->tv_sec = ns / BILLION;
    t->tv_nsec = ns % BILLION;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int result = true_time(id, t);
    if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) move(t, ahead_ns());
    return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

/* glibc keeps the clock of a condition variable in the second bit of __wrefs, which is set for CLOCK_MONOTONIC. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec t = *until;
    if (!(condition->__data.__wrefs & 2)) move(&t, -ahead_ns());
    return next_timedwait(condition, mutex, &t);
}

static void *report(void *unused) {
    (void)unused;
    char line[256];
    const struct timespec pause = {0, REPORT_EVERY_NS};
    for (;;) {
        struct timespec at, wall, monotonic;
        true_time(CLOCK_MONOTONIC, &at);
        clock_gettime(CLOCK_REALTIME, &wall);
        clock_gettime(CLOCK_MONOTONIC, &monotonic);
        int size = snprintf(line, sizeof line,
                            "{\"at_ns\":%lld,\"node\":\"%s\",\"event\":\"clock\",\"wall_ms\":%lld,\"monotonic_ns\":%lld}\n",
                            (long long)nanoseconds(&at), node, (long long)(nanoseconds(&wall) / 1000000),
                            (long long)nanoseconds(&monotonic));
        /* One write per line, so that a kill leaves whole lines. */
        if (size > 0 && size < (int)sizeof line && write(events, line, size) != size) return NULL;
        nanosleep(&pause, NULL);
    }
}

static void map_skew(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (lseek(file, 0, SEEK_END) >= SKEW_BYTES || !ftruncate(file, SKEW_BYTES)) {
        void *at = mmap(NULL, SKEW_BYTES, PROT_READ, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) skew = at;
    }
    close(file);
}

static void start_reporting(const char *path, const char *name) {
    if (strlen(name) >= sizeof node || strpbrk(name, "\"\\")) return;
    strcpy(node, name);
    events = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (events < 0) return;
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;
    /* The program's own threads handle its signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, report, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

__attribute__((constructor)) static void begin(void) {
    next_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    /* Not the oldest version of the symbol, which has another layout of condition variables. */
    next_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next_timedwait) next_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    const char *path = getenv("LASTSTAND_SKEW");
    if (path) map_skew(path);
    const char *log = getenv("LASTSTAND_CLOCK_EVENTS"), *name = getenv("LASTSTAND_NODE");
    if (log && name) start_reporting(log, name);
}
