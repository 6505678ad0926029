/* test_class_folders.c - folders are classes, in the order of their names; what cannot be meant is
 * refused with its path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/formats/class_folders.h"
#include "tests/support/files/picture_files.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/test_class_folders.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_tree(folder);
    return dp_mem_live() != 0;
}

static void put(const char *name)
{
    write_bytes(folder, name, "x", 1);
}

static void put_link(const char *name, const char *target)
{
    char path[4096];

    assert_true(snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path));
    assert_int_equal(symlink(target, path), 0);
}

static bool other_names; /* of the test set */

static struct dp_class_folders *opened(void)
{
    struct dp_class_folders *folders = NULL;

    assert_int_equal(dp_class_folders_create(folder, other_names, &folders), DP_OK);
    return folders;
}

/* One line that begins with the folder's path and has these words. */
static void assert_refused(dp_status expected, const char *words)
{
    struct dp_class_folders *folders = NULL;
    struct dp_log_capture capture;
    const char *said;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_class_folders_create(folder, other_names, &folders);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    said = dp_log_captured(&capture);
    if (strstr(said, words) == NULL || strncmp(said, folder, strlen(folder)) != 0) {
        fail_msg("\"%s\" does not say \"%s\"", said, words);
    }
    assert_int_equal(status, expected);
    assert_null(folders);
    assert_true(strlen(capture.lines) + 1 >= capture.used); /* nothing more is said */
}

static void assert_path(const struct dp_class_folders *folders, enum dp_set set, size_t row,
                        const char *name, int class)
{
    char path[DP_PATH_BYTES];

    assert_int_equal(dp_class_folders_path(folders, set, row, path), class);
    assert_string_equal(path + strlen(folder) + 1, name);
}

static void classes_and_pictures_are_in_the_order_of_their_names(void **state)
{
    struct dp_class_folders *folders;
    size_t left_out, below;
    (void)state;

    put("train/dog/b.jpeg");
    put("train/dog/a.PNG");
    put("train/dog/10.jpg");
    put("train/Zebra/z.png");
    put("train/cat/c.png");
    put("test/dog/d.png");
    put("train/cat/notes.txt");
    put("train/cat/more/e.png");
    put("train/.hidden/f.png");
    put("train/cat/.g.png");
    folders = opened();
    assert_int_equal(dp_class_folders_classes(folders), 3);
    assert_string_equal(dp_class_folders_names(folders)[0], "Zebra");
    assert_string_equal(dp_class_folders_names(folders)[1], "cat");
    assert_string_equal(dp_class_folders_names(folders)[2], "dog");
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TRAIN), 5);
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TEST), 1);
    assert_path(folders, DP_SET_TRAIN, 0, "train/Zebra/z.png", 0);
    assert_path(folders, DP_SET_TRAIN, 1, "train/cat/c.png", 1);
    assert_path(folders, DP_SET_TRAIN, 2, "train/dog/10.jpg", 2);
    assert_path(folders, DP_SET_TRAIN, 3, "train/dog/a.PNG", 2);
    assert_path(folders, DP_SET_TRAIN, 4, "train/dog/b.jpeg", 2);
    assert_path(folders, DP_SET_TEST, 0, "test/dog/d.png", 2);
    (void)dp_class_folders_left_out(folders, &left_out, &below);
    assert_int_equal(below, 1);
    assert_int_equal(left_out, 2); /* the notes, and the folder in a class */
    dp_class_folders_destroy(folders);
}

static void classes_may_lie_in_the_folder_itself(void **state)
{
    struct dp_class_folders *folders;
    (void)state;

    put("train/1.png"); /* a class of that name */
    put("test/2.png");
    put("tram/3.png");
    folders = opened();
    assert_int_equal(dp_class_folders_classes(folders), 3);
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TRAIN), 3);
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TEST), 0);
    assert_path(folders, DP_SET_TRAIN, 2, "tram/3.png", 2);
    dp_class_folders_destroy(folders);
}

static void classes_without_pictures_and_only_in_test_are_refused(void **state)
{
    (void)state;

    assert_refused(DP_ERR_DATA, ": no folders of classes: pictures are wanted in ");
    put("train/cat/1.png");
    put("train/dog/.notes");
    assert_refused(DP_ERR_DATA, "/train/dog: a class without a PNG or JPEG: put pictures there");
    put("train/dog/2.png");
    put("test/cat/1.png");
    put("test/cow/1.png");
    assert_refused(DP_ERR_DATA, "/test/cow: a class that is only in test: put pictures of it into");
    remove_file(folder, "test/cow/1.png");
    assert_refused(DP_ERR_DATA, "/test/cow: a class that is only in test");
    put("train/cow/1.png");
    assert_refused(DP_ERR_DATA, "/test/cow: a class without a PNG or JPEG");
    put("test/cow/1.webp");
    assert_refused(DP_ERR_DATA, "PNG or JPEG: convert what is there to one of them");
    put("test/cow/more/1.png");
    assert_refused(
        DP_ERR_DATA,
        "has folders, but no PNG or JPEG: pictures of a class lie directly in its folder; set "
        "data.dir to the folder of classes, or to that of sets, which are named train and test");
}

/* They would be learned to be told apart. */
static void sets_are_no_classes(void **state)
{
    (void)state;

    put("train/1.png");
    put("test/2.png");
    assert_refused(DP_ERR_DATA, ": no folders of classes: pictures are wanted in ");
}

static void the_test_set_may_have_another_name_where_that_is_asked_for(void **state)
{
    struct dp_class_folders *folders;
    (void)state;

    put("train/cat/1.png");
    put("val/cat/2.png");
    folders = opened();
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TEST), 0);
    dp_class_folders_destroy(folders);
    other_names = true;
    folders = opened();
    assert_path(folders, DP_SET_TEST, 0, "val/cat/2.png", 0);
    assert_string_equal(dp_class_folders_test_name(folders), "val");
    dp_class_folders_destroy(folders);
    put("val/dog/1.png");
    assert_refused(DP_ERR_DATA, "/val/dog: a class that is only in val: put pictures of it into");
    remove_tree(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    put("train/cat/1.png");
    put("val/2.png"); /* as ImageNet's */
    assert_refused(DP_ERR_DATA, "/val: has no folders of classes, as ");
    put("test/cat/3.png");
    folders = opened();
    assert_path(folders, DP_SET_TEST, 0, "test/cat/3.png", 0);
    dp_class_folders_destroy(folders);
    other_names = false;
}

static void litter_and_other_files_are_left_out(void **state)
{
    struct dp_class_folders *folders;
    size_t count, below;
    (void)state;

    put("train/cat/1.JPG");
    put("train/cat/.DS_Store");
    put("train/cat/Thumbs.db");
    put("train/__MACOSX/cat/._1.jpg");
    folders = opened();
    assert_int_equal(dp_class_folders_classes(folders), 1);
    (void)dp_class_folders_left_out(folders, &count, &below);
    assert_int_equal(count, 0);
    dp_class_folders_destroy(folders);
    put("train/cat/\033[2J.txt");
    folders = opened();
    assert_string_equal(dp_class_folders_left_out(folders, &count, &below), "\\x1b[2J.txt");
    assert_int_equal(count, 1);
    assert_int_equal(below, 0);
    put("train/cat/more/2.png");
    dp_class_folders_destroy(folders);
    folders = opened();
    (void)dp_class_folders_left_out(folders, &count, &below);
    assert_int_equal(below, 1);
    dp_class_folders_destroy(folders);
}

static void names_that_a_terminal_would_obey_are_refused(void **state)
{
    static const char *const names[] = {"train/cat/a\nb.png", "train/cat/\033[2J.png",
                                        "train/c\tat/1.png", "train/\xff\xfe/1.png"};
    (void)state;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        put("train/cat/1.png");
        put(names[i]);
        assert_refused(DP_ERR_DATA, "the name has control characters, or is no UTF-8: rename it");
        remove_tree(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
    put("train/caf\xc3\xa9 au lait/1 %s.png"); /* nothing is wrong with these */
    dp_class_folders_destroy(opened());
}

static void links_inside_the_folder_are_followed_and_others_refused(void **state)
{
    struct dp_class_folders *folders;
    char target[128];
    (void)state;

    put("train/cat/1.png");
    put("all/2.png");
    put_link("train/cat/3.png", "../../all/2.png");
    put_link("train/dog", "../all");
    folders = opened();
    assert_int_equal(dp_class_folders_count(folders, DP_SET_TRAIN), 3);
    assert_path(folders, DP_SET_TRAIN, 2, "train/dog/2.png", 1);
    dp_class_folders_destroy(folders);
    put_link("train/cat/4.png", "/etc/hostname");
    assert_refused(DP_ERR_DATA, "/train/cat/4.png: a link out of the data folder, to /etc/host");
    remove_file(folder, "train/cat/4.png");
    /* Beside the folder, with a name that begins alike. */
    (void)snprintf(target, sizeof(target), "%s-other", folder);
    assert_int_equal(mkdir(target, 0700), 0);
    put_link("train/bear", target);
    assert_refused(DP_ERR_DATA, "/train/bear: a link out of the data folder");
    remove_file(folder, "train/bear");
    remove_tree(target);
    put_link("train/cat/5.png", "nowhere.png");
    assert_refused(DP_ERR_DATA, "/train/cat/5.png: a link that leads nowhere");
    remove_file(folder, "train/cat/5.png");
    put_link("train/cat/6.png", "6.png"); /* round and round */
    assert_refused(DP_ERR_DATA, "/train/cat/6.png: a link that leads nowhere");
}

static void a_folder_that_is_not_there_is_refused(void **state)
{
    (void)state;

    put("train/cat/1.png");
    remove_tree(folder);
    assert_refused(DP_ERR_NOINPUT, "set data.dir to the folder of the pictures");
    write_bytes("/tmp", folder + 5, "x", 1);
    assert_refused(DP_ERR_NOINPUT, "Not a directory");
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    put("train/cat/1.png");
    put("test/cat/1.png");
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_class_folders *folders = NULL;
        dp_mem_fail_nth(nth);
        status = dp_class_folders_create(folder, other_names, &folders);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        dp_class_folders_destroy(folders);
        assert_int_equal(dp_mem_live(), 0);
    }
}

#define IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(classes_and_pictures_are_in_the_order_of_their_names),
        IN_FOLDER(classes_may_lie_in_the_folder_itself),
        IN_FOLDER(classes_without_pictures_and_only_in_test_are_refused),
        IN_FOLDER(sets_are_no_classes),
        IN_FOLDER(the_test_set_may_have_another_name_where_that_is_asked_for),
        IN_FOLDER(litter_and_other_files_are_left_out),
        IN_FOLDER(names_that_a_terminal_would_obey_are_refused),
        IN_FOLDER(links_inside_the_folder_are_followed_and_others_refused),
        IN_FOLDER(a_folder_that_is_not_there_is_refused),
        IN_FOLDER(a_failed_allocation_leaves_nothing),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
