/* What the device of rank 0 chose while it planned, for the other ranks; and the instructions that
 * all of them have. */
#include "share_choices.h"
#include "base/mem.h"
#include "trainer/log.h"
#include <string.h>

/* Before each choice in the message: the bytes of its key, with the final zero, and of its value.
 */
typedef struct {
    uint64_t key_bytes, value_bytes;
} head_t;

static tr_status_t append(void *self, const char *key, const void *value, size_t bytes) {
    tr_str_t *message = self;
    const head_t head = {strlen(key) + 1, bytes};
    tr_str_append_bytes(message, (const char *)&head, sizeof head);
    tr_str_append_bytes(message, key, head.key_bytes);
    tr_str_append_bytes(message, value, bytes);
    return message->status;
}

static tr_status_t share_choices_take(tr_device_t *device, const char *message, size_t bytes) {
    head_t head;
    for (size_t at = 0; at < bytes; at += sizeof head + head.key_bytes + head.value_bytes) {
        memcpy(&head, message + at, sizeof head);
        const char *key = message + at + sizeof head;
        TR_TRY(device->ops->choices_set(device, key, key + head.key_bytes, head.value_bytes));
    }
    return TR_OK;
}

/* FNV-1a, of keys and values in their order. */
static tr_status_t add_hash(void *self, const char *key, const void *value, size_t bytes) {
    uint64_t hash = *(uint64_t *)self ^ tr_hash_name(key);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)value)[i]) * 0x100000001b3;
    *(uint64_t *)self = hash;
    return TR_OK;
}

tr_status_t tr_choices_are_alike(tr_world_t *world, tr_device_t *device, bool planned,
                                 bool *out_alike) {
    uint64_t hash = 0xcbf29ce484222325;
    TR_TRY(tr_world_agree(world, device->ops->choices_get(device, add_hash, &hash)));
    const int64_t mine = (int64_t)(hash >> 1);
    int64_t least[] = {mine, -mine, planned};
    TR_TRY(tr_world_allreduce_int(world, least, 3, TR_REDUCE_MIN));
    *out_alike = least[0] == -least[1] && least[2];
    return TR_OK;
}

tr_status_t tr_share_choices(tr_world_t *world, tr_device_t *device) {
    const bool gives = tr_world_info(world)->rank == 0;
    tr_str_t message = {0};
    char *text = NULL;
    tr_status_t status = gives ? device->ops->choices_get(device, append, &message) : TR_OK;
    uint64_t bytes = message.length;
    TR_TRY_GOTO(tr_world_agree(world, status), done);
    TR_TRY_GOTO(tr_world_broadcast(world, &bytes, sizeof bytes, 0), done);
    if (bytes == 0) goto done;
    if (!gives) status = tr_alloc(bytes, "choices of rank 0", &text);
    TR_TRY_GOTO(tr_world_agree(world, status), done);
    TR_TRY_GOTO(tr_world_broadcast(world, gives ? message.text : text, bytes, 0), done);
    if (!gives) status = share_choices_take(device, text, bytes);
done:
    tr_str_free(&message);
    tr_free(&text);
    return status;
}

/* Where all processors are alike, oneDNN may use whatever it knows, as in a run of one rank. */
tr_status_t tr_common_isa(tr_world_t *world, const tr_isa_t *own, int *out_set, int *out_most) {
    int64_t least[] = {own->set, -own->set, own->features, -own->features, !own->is_limited};
    TR_TRY(tr_world_allreduce_int(world, least, (int)TR_COUNT(least), TR_REDUCE_MIN));
    *out_set = least[2] == -least[3] && least[4] ? -1 : (int)least[0];
    *out_most = (int)-least[1];
    return TR_OK;
}

tr_status_t tr_share_isa(tr_world_t *world) {
    tr_isa_t own = {0};
    int set, most;
    TR_TRY(tr_world_agree(world, tr_isa_find(&own)));
    TR_TRY(tr_common_isa(world, &own, &set, &most));
    if (set >= 0 && tr_isa_limit(set) && set < most)
        TR_INFO("instructions: %s, which all ranks have; some have %s", tr_isa_name(set),
                tr_isa_name(most));
    return TR_OK;
}
