/// Preloaded into tsdiag: where its main thread is, 500 times a second, computing or waiting.
///
///     TSDIAG_SAMPLES=FILE LD_PRELOAD=libtsdiag_sampler.so tsdiag ...
///
/// At its end FILE has the process's mappings ("map" and a line of /proc/self/maps) and a line for
/// each sample: "at" and the addresses, innermost first.  gpu/samples sums them up by function.
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr int most = 100000;  // 200 seconds
constexpr int depth = 48;
constexpr int own_frames = 2;  // the handler's and the kernel's

struct Sample {
    void* frames[depth];  // null behind the last
};
Sample* samples;  // pages that are not written take no memory
std::atomic<int> count{0};
std::atomic<bool> ended{false};
char* file;
pid_t process, main_thread;

/// Code that describes its stack wrongly, such as the switch of the emulator's fibers, leads the
/// walk anywhere: what it has found before it faults is kept.
sigjmp_buf walk;
volatile sig_atomic_t walking = 0;

void fault(int number) {
    if (walking && syscall(SYS_gettid) == main_thread) siglongjmp(walk, 1);
    signal(number, SIG_DFL);  // the program's own: it faults again, and ends
}

void sample(int) {
    if (count >= most || ended) return;
    if (sigsetjmp(walk, 1) == 0) {
        walking = 1;
        backtrace(samples[count].frames, depth);
    }
    walking = 0;
    ++count;
}

void* tick(void*) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const timespec pause{0, 2000000};
    while (!ended) {
        nanosleep(&pause, nullptr);
        syscall(SYS_tgkill, process, main_thread, SIGPROF);
    }
    return nullptr;
}

void write_samples() {
    if (getpid() != process) return;  // a child that was forked ends, too
    ended = true;
    FILE* out = fopen(file, "w");
    FILE* maps = fopen("/proc/self/maps", "re");
    char line[4096];
    if (!out) return;
    while (maps && fgets(line, sizeof line, maps)) fprintf(out, "map %s", line);
    for (int i = 0; i < count; ++i) {
        fputs("at", out);
        for (int k = own_frames; k < depth && samples[i].frames[k]; ++k)
            fprintf(out, " %p", samples[i].frames[k]);
        fputc('\n', out);
    }
    if (maps) fclose(maps);
    fclose(out);
}

/// oneDNN's products move the stack pointer into their workspace, where a handler would write: it
/// has a stack of its own.
__attribute__((constructor)) void start() {
    static char stack[1 << 18];
    const char* name = getenv("TSDIAG_SAMPLES");
    // What starts it, and what it starts, is preloaded, too; so is tsdiag before it executes itself
    // anew.
    if (!name || strcmp(program_invocation_short_name, "tsdiag") != 0) return;
    file = strdup(name);
    samples = static_cast<Sample*>(calloc(most, sizeof(Sample)));
    if (!file || !samples) return;
    process = getpid();
    main_thread = pid_t(syscall(SYS_gettid));
    void* first[4];
    backtrace(first, 4);  // loads the library that it needs, which a handler may not
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_handler = sample;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(SIGPROF, &action, nullptr);
    action.sa_handler = fault;
    sigaction(SIGSEGV, &action, nullptr);
    atexit(write_samples);
    pthread_t ticker;
    if (pthread_create(&ticker, nullptr, tick, nullptr) == 0) pthread_detach(ticker);
}

}  // namespace
