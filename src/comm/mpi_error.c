/* Turns errors of MPI into a status. */
#include "world_int.h"

static bool mpi_error_is_misuse(int error_class) {
    switch (error_class) {
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_TAG:
    case MPI_ERR_COMM:
    case MPI_ERR_RANK:
    case MPI_ERR_ROOT:
    case MPI_ERR_GROUP:
    case MPI_ERR_OP:
    case MPI_ERR_ARG:
    case MPI_ERR_REQUEST:
    case MPI_ERR_TRUNCATE: return true;
    default: return false;
    }
}

tr_status_t tr_mpi_check(int code, const char *call, const char *file, int line, const char *func) {
    char text[MPI_MAX_ERROR_STRING] = "no text";
    int length = 0, error_class = MPI_ERR_UNKNOWN;
    MPI_Error_class(code, &error_class);
    MPI_Error_string(code, text, &length);
    if (mpi_error_is_misuse(error_class))
        return tr_error_record(TR_ERR_INTERNAL, file, line, func,
                               "%s rejected its arguments: %s. Please report this.", call, text);
    return tr_error_record(TR_ERR_RETRY, file, line, func,
                           "%s failed: %s. The connection to a rank was lost; start the job again.",
                           call, text);
}

void tr_mpi_free(MPI_Comm *comm) {
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

tr_status_t tr_mpi_timed_out(double timeout_sec, int64_t number) {
    return TR_FAIL(
        TR_ERR_RETRY,
        "Waited %.3g s (parallel.timeout) for communication %lld, and other ranks did not join it: "
        "a rank has stopped or is much slower. Start the job again, or increase parallel.timeout.",
        timeout_sec, (long long)number);
}
