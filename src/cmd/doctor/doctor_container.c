/* Checks of what containers often lack: a folder for temporary files, a common user namespace. */
#include "doctor.h"
#include "base/host.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "trainer/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where Open MPI makes its files; it makes a folder that is not there. */
static const char *doctor_temporary_folder(void) {
    const char *const names[] = {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"};
    for (size_t i = 0; i < TR_COUNT(names); i++) {
        const char *folder = getenv(names[i]);
        if (folder && folder[0]) return folder;
    }
    return "/tmp";
}

tr_status_t doctor_try_temporary(void) {
    const char *folder = doctor_temporary_folder();
    char path[4096];
    /* mpirun has made the files of its ranks; a process without a launcher does not start MPI */
    if (tr_launch_is_mpirun() || !tr_launch_exists()) return TR_OK;
    if (snprintf(path, sizeof path, "%s/trainer-XXXXXX", folder) >= (int)sizeof path)
        return TR_FAIL(TR_ERR_CONFIG, "%.64s...: expected a path of at most 4000 characters",
                       folder);
    const bool is_new = mkdir(folder, 0700) == 0;
    const int fd = mkstemp(path), error = errno;
    if (fd >= 0) close(fd), unlink(path);
    if (is_new) rmdir(folder);
    if (fd >= 0) return TR_OK;
    return TR_FAIL(error == EACCES || error == EROFS ? TR_ERR_PERMISSION : TR_ERR_IO,
                   "MPI cannot start on %s: no file can be made in the folder for temporary "
                   "files, %s: %s. Make it writable (apptainer --writable-tmpfs or --bind /tmp, an "
                   "emptyDir at /tmp), or set TMPDIR",
                   tr_host_name(), folder, strerror(error));
}

uint64_t doctor_user_namespace(void) {
    struct stat s;
    return stat("/proc/self/ns/user", &s) == 0 ? (uint64_t)s.st_ino : 0;
}

/* The first rank of its node that has another user namespace; NULL: none. */
static const doctor_rank_t *doctor_container_find_other(const doctor_t *d,
                                                        const doctor_rank_t *rank) {
    for (int r = 0; r < rank->rank; r++) {
        const doctor_rank_t *other = &d->ranks[r];
        if (other->node == rank->node && other->user_namespace && rank->user_namespace &&
            other->user_namespace != rank->user_namespace)
            return other;
    }
    return NULL;
}

void doctor_check_namespaces(doctor_t *d) {
    const char *copies = getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
    if (copies && strcmp(copies, "none") == 0) return;
    for (int r = 0; r < d->info->size; r++) {
        const doctor_rank_t *other = doctor_container_find_other(d, &d->ranks[r]);
        if (!other) continue;
        doctor_find(d, "namespaces", DOCTOR_WARNING, TR_OK,
                    "Set OMPI_MCA_btl_vader_single_copy_mechanism=none: some versions of Open MPI "
                    "fail or hang at large messages otherwise. Or start the ranks of a node in one "
                    "container.",
                    "%s: ranks %d and %d are in different user namespaces, so that one cannot "
                    "read the memory of the other",
                    other->host, other->rank, r);
        return;
    }
}
