/* What is read from the launcher's environment and from affinity masks; no MPI call is made. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "comm/world_int.h"

static const char *const names[] = {"MPI_RANKID",
                                    "PMIX_RANK",
                                    "PMI_FD",
                                    "PALS_RANKID",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "PMI_SIZE",
                                    "PMIX_NAMESPACE",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "OMPI_COMM_WORLD_RANK",
                                    "PMI_RANK",
                                    "SLURM_PROCID"};

static int clear(void **state) {
    for (size_t i = 0; i < TR_COUNT(names); i++) unsetenv(names[i]);
    return 0;
}

static void test_plain_shell(void **state) {
    assert_int_equal(tr_launch_tasks(), 0);
    setenv("SLURM_NTASKS", "4", 1); /* in an allocation, without srun */
    assert_int_equal(tr_launch_tasks(), 0);
}

static void test_batch_step(void **state) {
    setenv("SLURM_NTASKS", "4", 1);
    setenv("SLURM_STEP_ID", "4294967291", 1);
    assert_int_equal(tr_launch_tasks(), 0);
    setenv("SLURM_STEP_ID", "4294967290", 1);
    assert_int_equal(tr_launch_tasks(), 0);
}

static void test_srun(void **state) {
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    assert_int_equal(tr_launch_tasks(), 8);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(tr_launch_tasks(), 4);
    setenv("PMIX_NAMESPACE", "slurm.pmix.77.0", 1);
    assert_int_equal(tr_launch_tasks(), 4);
    setenv("PMI_SIZE", "6", 1);
    assert_int_equal(tr_launch_tasks(), 6);
}

static void test_mpirun_in_a_step(void **state) {
    /* The daemon's step has a task a node; the rank is one of mpirun's. */
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("PMIX_NAMESPACE", "1234567", 1);
    assert_int_equal(tr_launch_tasks(), 0);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(tr_launch_tasks(), 1);
}

static void test_foreign_mpirun(void **state) {
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(tr_launch_tasks(), 4);
}

static void test_rank(void **state) {
    assert_int_equal(tr_launch_rank(), 0);
    setenv("SLURM_PROCID", "3", 1); /* inherited from a shell of the allocation */
    assert_int_equal(tr_launch_rank(), 0);
    setenv("SLURM_STEP_ID", "0", 1);
    assert_int_equal(tr_launch_rank(), 3);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    assert_int_equal(tr_launch_rank(), 2);
}

static void test_exists(void **state) {
    static const char *const of_ranks[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PALS_RANKID", "MPI_RANKID"};
    setenv("SLURM_NTASKS", "4", 1); /* a job's script, whose step is special */
    setenv("SLURM_STEP_ID", "4294967291", 1);
    setenv("PMIX_MCA_gds", "hash", 1);
    setenv("OMPI_MCA_btl", "self", 1);
    assert_false(tr_launch_exists());
    setenv("SLURM_STEP_ID", "0", 1);
    assert_true(tr_launch_exists());
    setenv("SLURM_NTASKS", "1", 1);
    assert_false(tr_launch_exists());
    for (size_t i = 0; i < TR_COUNT(of_ranks); i++) {
        setenv(of_ranks[i], "0", 1);
        assert_true(tr_launch_exists());
        unsetenv(of_ranks[i]);
    }
    setenv("SLURM_NTASKS", "4", 1);
    setenv("PMI_RANK", "1", 1);
    setenv("SLURM_PROCID", "1", 1);
    tr_launch_leave();
    assert_false(tr_launch_exists());
    assert_int_equal(tr_launch_rank(), 0);
    assert_non_null(getenv("PMIX_MCA_gds"));
}

static void test_nodes(void **state) {
    const int blocks[] = {0, 0, 0, 3, 3, 5}, cyclic[] = {0, 1, 0, 1, 0};
    int node = -1, nodes = -1;
    tr_count_nodes(blocks, 6, 4, &node, &nodes);
    assert_int_equal(node, 1);
    assert_int_equal(nodes, 3);
    tr_count_nodes(blocks, 6, 5, &node, &nodes);
    assert_int_equal(node, 2);
    tr_count_nodes(cyclic, 5, 3, &node, &nodes);
    assert_int_equal(node, 1);
    assert_int_equal(nodes, 2);
}

static cpu_set_t cores(int first, int count) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++) CPU_SET(first + i, &set);
    return set;
}

static void test_cores(void **state) {
    int own = 0, shared = 0;
    cpu_set_t apart[] = {cores(0, 2), cores(2, 4)};
    assert_false(tr_count_cores(apart, 2, 1, &own, &shared));
    assert_int_equal(own, 4);
    assert_int_equal(shared, 1);
    cpu_set_t together[] = {cores(0, 2), cores(0, 2), cores(0, 2)};
    assert_true(tr_count_cores(together, 3, 0, &own, &shared));
    assert_int_equal(own, 2);
    assert_int_equal(shared, 3);
    cpu_set_t touching[] = {cores(0, 4), cores(2, 4), cores(5, 4)};
    assert_false(tr_count_cores(touching, 3, 2, &own, &shared));
    assert_int_equal(shared, 2);
    tr_count_cores(touching, 3, 1, &own, &shared);
    assert_int_equal(shared, 3);
}

/* A container that sees all cores of its machine, and is granted the time of some. */
static void test_limited(void **state) {
    static const struct {
        int limit, ranks, cores, shared_by, share;
        bool crowded;
    } cases[] = {{0, 2, 64, 2, 32, false}, {4, 1, 64, 1, 4, false}, {4, 2, 64, 2, 2, false},
                 {7, 2, 8, 1, 3, false},   {16, 2, 4, 1, 4, false}, {2, 3, 64, 3, 1, true}};
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        tr_world_info_t info = {.local_size = cases[i].ranks,
                                .cores = cases[i].cores,
                                .cores_shared_by = cases[i].shared_by};
        assert_int_equal(tr_limit_cores(cases[i].limit, &info), cases[i].crowded);
        assert_int_equal(info.cores / info.cores_shared_by, cases[i].share);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_plain_shell, clear),
        cmocka_unit_test_setup(test_batch_step, clear),
        cmocka_unit_test_setup(test_srun, clear),
        cmocka_unit_test_setup(test_mpirun_in_a_step, clear),
        cmocka_unit_test_setup(test_foreign_mpirun, clear),
        cmocka_unit_test_setup(test_rank, clear),
        cmocka_unit_test_setup(test_exists, clear),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
