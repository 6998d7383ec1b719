/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvidia-cuda-mps-control for tests: a daemon (-f, -d) on a socket in CUDA_MPS_PIPE_DIRECTORY and
 * the client that talks to it. Files in $FAKE_MPS change its manners:
 *   no-multiuser   -multiuser-server is not known
 *   no-foreground  -f is not known
 *   no-start       it ends at once, with words
 *   no-limits      limits are refused
 *   no-percent     limits are taken and forgotten
 *   no-answer      clients hang
 *   stubborn       it ignores quit and SIGTERM
 * Every daemon adds a line to $FAKE_MPS/starts. Commands of its own: "fake_server PID STATUS" (0:
 * none), "fake_log TEXT", "fake_die", "fake_hang", "fake_show".
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *pipe_dir, *manners_dir;

static int manner(const char *name)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/%s", manners_dir, name);
    return access(path, F_OK) == 0;
}

static int socket_at(struct sockaddr_un *addr)
{
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(addr->sun_path, sizeof(addr->sun_path), "%.90s/control", pipe_dir);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int client(void)
{
    struct sockaddr_un addr;
    char buf[4096];
    int fd = socket_at(&addr);
    if (manner("no-answer"))
        (void)pause();
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        printf("Cannot find MPS control daemon process\n");
        return 1;
    }
    ssize_t n;
    while ((n = read(STDIN_FILENO, buf, sizeof(buf))) > 0)
        if (write(fd, buf, (size_t)n) != n)
            return 1;
    (void)shutdown(fd, SHUT_WR);
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        if (write(STDOUT_FILENO, buf, (size_t)n) != n)
            return 1;
    return 0;
}

static struct {
    double percent;
    char memory[32];
    char sets[256]; /* what was set of servers */
    int server;
    char status[32];
} state = {.percent = 100, .memory = "none"};

static void say(int fd, const char *text)
{
    ssize_t ignored = write(fd, text, strlen(text)); /* who asked may be gone */
    (void)ignored;
}

static void set_limit(int fd, const char *line)
{
    double percent;
    if (manner("no-limits")) {
        say(fd, "Error: invalid limit\n");
        return;
    }
    if (sscanf(line, "set_default_active_thread_percentage %lf", &percent) == 1)
        state.percent = manner("no-percent") ? 100 : percent;
    else if (sscanf(line, "set_default_device_pinned_mem_limit 0 %31s", state.memory) != 1)
        (void)snprintf(state.sets + strlen(state.sets), sizeof(state.sets) - strlen(state.sets),
                       "%s;", line);
}

static void run(int fd, char *line)
{
    char text[512];
    if (strncmp(line, "set_", 4) == 0) {
        set_limit(fd, line);
    } else if (strcmp(line, "get_default_active_thread_percentage") == 0) {
        (void)snprintf(text, sizeof(text), "%.1f\n", state.percent);
        say(fd, text);
    } else if (strcmp(line, "get_server_list") == 0) {
        (void)snprintf(text, sizeof(text), "%d\n", state.server);
        if (state.server)
            say(fd, text);
    } else if (strncmp(line, "get_server_status", 17) == 0) {
        (void)snprintf(text, sizeof(text), "%s\n", state.status);
        say(fd, text);
    } else if (sscanf(line, "fake_server %d %31s", &state.server, state.status) >= 1) {
        say(fd, "ok\n");
    } else if (strncmp(line, "fake_log ", 9) == 0) {
        printf("[2026-01-01 00:00:00.000 Server 1] %s\n", line + 9);
    } else if (strcmp(line, "fake_show") == 0) {
        (void)snprintf(text, sizeof(text), "%.1f %s %s\n", state.percent, state.memory, state.sets);
        say(fd, text);
    } else if (strcmp(line, "fake_die") == 0) {
        printf("[2026-01-01 00:00:00.000 Control 1] something terrible happened\n");
        _exit(9);
    } else if (strcmp(line, "fake_hang") == 0) {
        (void)close(fd);
        for (;;)
            (void)pause();
    } else if (strcmp(line, "quit") == 0 && !manner("stubborn")) {
        (void)close(fd);
        _exit(0);
    }
}

static void serve(void)
{
    struct sockaddr_un addr;
    char path[600], buf[4096];
    int fd = socket_at(&addr);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 8) != 0) {
        printf("An instance of this daemon is already running\n");
        _exit(1);
    }
    (void)snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", pipe_dir);
    FILE *f = fopen(path, "we");
    if (f) {
        fprintf(f, "%d", (int)getpid());
        (void)fclose(f);
    }
    for (;;) {
        int c = accept(fd, NULL, NULL);
        size_t n = 0;
        ssize_t got;
        if (c < 0)
            continue;
        while (n < sizeof(buf) - 1 && (got = read(c, buf + n, sizeof(buf) - 1 - n)) > 0)
            n += (size_t)got;
        buf[n] = '\0';
        char *save = NULL;
        for (char *line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            run(c, line);
        (void)close(c);
        (void)fflush(stdout);
    }
}

static void note_start(int argc, char **argv)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/starts", manners_dir);
    FILE *f = fopen(path, "ae");
    if (!f)
        return;
    for (int i = 1; i < argc; i++)
        fprintf(f, "%s ", argv[i]);
    fprintf(f, "%s\n", getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "all");
    (void)fclose(f);
}

int main(int argc, char **argv)
{
    pipe_dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    manners_dir = getenv("FAKE_MPS");
    if (!pipe_dir || !manners_dir)
        return 2;
    if (argc < 2)
        return client();
    (void)alarm(120); /* a test that died leaves nothing behind for long */
    (void)signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (manner("no-start")) {
        printf("no CUDA-capable device is detected\n");
        return 1;
    }
    if ((argc > 2 && manner("no-multiuser")) || (manner("no-foreground") && argv[1][1] == 'f')) {
        printf("unrecognised option\n");
        return 1;
    }
    note_start(argc, argv);
    if (manner("stubborn"))
        (void)signal(SIGTERM, SIG_IGN);
    if (strcmp(argv[1], "-d") == 0) {
        if (fork() != 0)
            return 0;
        (void)setsid();
        (void)alarm(120);
    }
    serve();
    return 0;
}
