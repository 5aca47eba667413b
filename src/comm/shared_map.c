/* Passes the files of shared memory between the ranks of a node, and maps them. */
#include "base/mem_shared.h"
#include "shared_int.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_SEC  10  /* for a message that the sender has sent already */
#define STRANGERS 100 /* connections of other programs that are refused */

typedef struct {
    char bytes[16];
} token_t;

/* What MPI tells of a rank. */
typedef struct {
    int node, place; /* place: the local rank */
    token_t token;
    socklen_t address_bytes;
    struct sockaddr_un address; /* of its socket, in the abstract namespace */
} shared_rank_t;

/* What a connection passes, with the file. */
typedef struct {
    token_t token; /* of the receiver */
    int place;     /* of the sender */
} message_t;

typedef struct {
    tr_world_t *world;
    int count, mine, listener, file; /* file: of this rank */
    shared_rank_t *rank;             /* [count], by place */
    int *link, *got;                 /* [count] by place: connections, and files; -1: none */
} shared_exchange_t;

static tr_status_t shared_fail(const char *what) {
    return TR_FAIL(TR_ERR_IO, "cannot %s the ranks of its node: %s", what, strerror(errno));
}

/* -- messages ---------------------------------------------------------------------------------- */

typedef union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr head; /* for the alignment */
} control_t;

static bool message_send(int link, const message_t *message, int file) {
    control_t control = {0};
    struct iovec part = {(void *)message, sizeof *message};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    control.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &file, sizeof file);
    return sendmsg(link, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *message;
}

/* The file of a message with this token; -1: there is none. */
static int message_receive(int link, const token_t *token, message_t *out) {
    control_t control = {0};
    struct iovec part = {out, sizeof *out};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_LEN(sizeof(int))}; /* one file */
    int file = -1;
    const ssize_t got = recvmsg(link, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = got >= 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof file))
        memcpy(&file, CMSG_DATA(head), sizeof file);
    if (file >= 0 &&
        (got != (ssize_t)sizeof *out || memcmp(&out->token, token, sizeof *token) != 0)) {
        close(file);
        file = -1;
    }
    return file;
}

static int message_socket(void) {
    const int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct timeval wait = {.tv_sec = WAIT_SEC};
    if (link < 0) return -1;
    (void)setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    (void)setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    return link;
}

/* -- the exchange: in each pair of ranks the one of the higher place connects ------------------- */

/* Makes the socket and the token of this rank. The kernel chooses the name of the socket. */
static tr_status_t shared_listen(shared_exchange_t *x, shared_rank_t *mine) {
    mine->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    mine->address_bytes = sizeof mine->address;
    x->listener = message_socket();
    if (x->listener < 0 || getrandom(&mine->token, sizeof mine->token, 0) != sizeof mine->token ||
        bind(x->listener, (struct sockaddr *)&mine->address, sizeof(sa_family_t)) != 0 ||
        listen(x->listener, x->count) != 0 ||
        getsockname(x->listener, (struct sockaddr *)&mine->address, &mine->address_bytes) != 0)
        return shared_fail("open a socket for");
    return TR_OK;
}

static tr_status_t shared_connect(shared_exchange_t *x) {
    for (int place = 0; place < x->mine; place++) {
        const shared_rank_t *peer = &x->rank[place];
        const message_t message = {peer->token, x->mine};
        x->link[place] = message_socket();
        if (x->link[place] < 0 ||
            connect(x->link[place], (const struct sockaddr *)&peer->address, peer->address_bytes) !=
                0 ||
            !message_send(x->link[place], &message, x->file))
            return shared_fail("connect to");
    }
    return TR_OK;
}

/* The ranks of higher places have connected, so nothing is waited for. */
static tr_status_t shared_accept(shared_exchange_t *x) {
    const int expected = x->count - 1 - x->mine;
    for (int found = 0, strangers = 0; found < expected && strangers < STRANGERS;) {
        const int link = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC);
        const struct timeval wait = {.tv_sec = WAIT_SEC};
        message_t message;
        if (link < 0) return shared_fail("accept connections of");
        (void)setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        const int file = message_receive(link, &x->rank[x->mine].token, &message);
        if (file < 0 || message.place <= x->mine || message.place >= x->count ||
            x->got[message.place] >= 0) {
            if (file >= 0) close(file);
            close(link);
            strangers++;
            continue;
        }
        x->link[message.place] = link;
        x->got[message.place] = file;
        const message_t reply = {x->rank[message.place].token, x->mine};
        if (!message_send(link, &reply, x->file)) return shared_fail("answer");
        found++;
    }
    for (int place = x->mine + 1; place < x->count; place++)
        if (x->got[place] < 0)
            return TR_FAIL(TR_ERR_IO, "another program connects in place of a rank of its node");
    return TR_OK;
}

static tr_status_t shared_take_replies(shared_exchange_t *x) {
    for (int place = 0; place < x->mine; place++) {
        message_t message;
        x->got[place] = message_receive(x->link[place], &x->rank[x->mine].token, &message);
        if (x->got[place] < 0) return shared_fail("get an answer from");
    }
    return TR_OK;
}

/* A file that could shrink would end this process with SIGBUS. */
static tr_status_t shared_map_files(const shared_exchange_t *x, tr_shared_map_t *map) {
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    for (int place = 0; place < x->count; place++) {
        struct stat facts;
        if (place == x->mine) continue;
        if (fstat(x->got[place], &facts) != 0 || (size_t)facts.st_size < map->bytes ||
            (fcntl(x->got[place], F_GET_SEALS) & sealed) != sealed)
            return TR_FAIL(TR_ERR_IO, "the memory of local rank %d is no sealed file of %zu bytes",
                           place, map->bytes);
        void *at = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, x->got[place], 0);
        if (at == MAP_FAILED) return shared_fail("map the memory of");
        map->of[place] = at;
    }
    return TR_OK;
}

static tr_status_t shared_gather(shared_exchange_t *x, const shared_rank_t *mine) {
    const tr_world_info_t *info = &x->world->info;
    shared_rank_t *all = NULL;
    TR_TRY(tr_alloc((size_t)info->size * sizeof *all, "addresses of ranks", &all));
    tr_status_t status = tr_world_allgather(x->world, mine, sizeof *mine, all);
    for (int r = 0; status == TR_OK && r < info->size; r++)
        if (all[r].node == info->node) x->rank[all[r].place] = all[r];
    tr_free(&all);
    return status;
}

static tr_status_t shared_exchange(shared_exchange_t *x, tr_shared_map_t *map) {
    tr_world_t *w = x->world;
    shared_rank_t mine = {.node = w->info.node, .place = x->mine};
    const tr_status_t has_file =
        x->file >= 0 ? TR_OK
                     : TR_FAIL(TR_ERR_IO, "has no memory that can be shared (memfd_create)");
    TR_TRY(tr_world_agree(w, has_file != TR_OK ? has_file : shared_listen(x, &mine)));
    TR_TRY(shared_gather(x, &mine));
    TR_TRY(tr_world_agree(w, shared_connect(x)));
    TR_TRY(tr_world_agree(w, shared_accept(x)));
    TR_TRY(tr_world_agree(w, shared_take_replies(x)));
    return tr_world_agree(w, shared_map_files(x, map));
}

tr_status_t tr_shared_map(tr_world_t *world, void *memory, size_t bytes, tr_shared_map_t *out) {
    const tr_world_info_t *info = &world->info;
    shared_exchange_t x = {.world = world,
                           .count = info->local_size,
                           .mine = info->local_rank,
                           .listener = -1,
                           .file = tr_shared_file(memory)};
    tr_shared_map_t map = {.bytes = bytes, .count = x.count, .mine = x.mine};
    const size_t count = (size_t)x.count;
    tr_status_t status = tr_alloc(count * sizeof *map.of, "shared memory", &map.of);
    if (status == TR_OK) status = tr_alloc(count * sizeof *x.rank, "ranks of a node", &x.rank);
    if (status == TR_OK) status = tr_alloc(2 * count * sizeof *x.link, "links", &x.link);
    status = tr_world_agree(world, status);
    if (status == TR_OK) {
        memset(x.link, -1, 2 * count * sizeof *x.link);
        x.got = x.link + count;
        map.of[x.mine] = memory;
        status = shared_exchange(&x, &map);
        for (size_t i = 0; i < 2 * count; i++)
            if (x.link[i] >= 0) close(x.link[i]);
        if (x.listener >= 0) close(x.listener);
    }
    tr_free(&x.link);
    tr_free(&x.rank);
    if (status == TR_OK)
        *out = map;
    else
        tr_shared_unmap(&map);
    return status;
}

void tr_shared_unmap(tr_shared_map_t *map) {
    for (int place = 0; map->of && place < map->count; place++)
        if (place != map->mine && map->of[place]) munmap(map->of[place], map->bytes);
    tr_free(&map->of);
}
