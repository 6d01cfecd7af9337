/* A process's wall clock, moved: preloaded, this adds to CLOCK_REALTIME the seconds that lie in the shared file
 * $TESTS_CLOCK, whenever they change. CLOCK_MONOTONIC stays as it is, as when a machine's clock is set. A missing file is
 * made. With $TESTS_CLOCK_PID only the process of this number has the moved clock, and not what it starts: the kernel
 * waits by its own clock, and a program that waits until a moment of the moved one would wait for too long.
 *
 * It includes no headers and links nothing, so that a bare compiler is enough. */

struct timespec { long seconds, nanoseconds; };
struct timeval { long seconds, microseconds; };

extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern int atoi(const char *);
extern int getpid(void);
extern int open(const char *, int, ...);
extern int ftruncate(int, long);
extern void *mmap(void *, unsigned long, int, int, int, long);

#define NEXT ((void *) -1L) /* RTLD_NEXT */

static volatile long *moved;
static int only;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TESTS_CLOCK"), *pid = getenv("TESTS_CLOCK_PID");
    int file = open(path ? path : "", 0 /* O_RDONLY */);
    only = pid ? atoi(pid) : 0;
    if (only && only != getpid()) return;
    if (file < 0 && path) {
        file = open(path, 2 | 0100 /* O_RDWR | O_CREAT */, 0666);
        ftruncate(file, sizeof(long));
    }
    moved = mmap(0, sizeof(long), 1 /* PROT_READ */, 1 /* MAP_SHARED */, file, 0);
}

static long seconds(void) {
    if (moved == 0 || moved == (void *) -1L || (only && only != getpid())) return 0;
    return *moved;
}

int clock_gettime(int clock, struct timespec *at) {
    static int (*real)(int, struct timespec *);
    if (real == 0) real = dlsym(NEXT, "clock_gettime");
    int answer = real(clock, at);
    if (answer == 0 && (clock == 0 /* CLOCK_REALTIME */ || clock == 5 /* CLOCK_REALTIME_COARSE */))
        at->seconds += seconds();
    return answer;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec exact;
    (void) zone;
    if (clock_gettime(0, &exact) != 0) return -1;
    at->seconds = exact.seconds;
    at->microseconds = exact.nanoseconds / 1000;
    return 0;
}

long time(long *at) {
    struct timespec exact;
    clock_gettime(0, &exact);
    if (at != 0) *at = exact.seconds;
    return exact.seconds;
}
