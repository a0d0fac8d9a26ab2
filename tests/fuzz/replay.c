/* A main for builds without libFuzzer: runs the target once over each file that is named, or lies in a directory that
 * is named. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, unsigned *count) {
    struct stat stat_now;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &stat_now)) {
        perror(path);
        return 1;
    }
    size_t size = (size_t)stat_now.st_size;
    uint8_t *data = malloc(size + 1);
    int wrong = !data || fread(data, 1, size, file) != size;
    fclose(file);
    if (wrong) {
        fprintf(stderr, "%s: cannot be read\n", path);
    } else {
        /* A failure aborts: the last line names the input. */
        fprintf(stderr, "%s\n", path);
        LLVMFuzzerTestOneInput(data, size);
        ++*count;
    }
    free(data);
    return wrong;
}

static int replay_directory(DIR *directory, const char *path, unsigned *count) {
    int wrong = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        wrong |= replay_file(name, count);
    }
    return wrong;
}

int main(int count, char **arguments) {
    unsigned replayed = 0;
    int wrong = 0;
    for (int i = 1; i < count; i++) {
        DIR *directory = opendir(arguments[i]);
        wrong |=
            directory ? replay_directory(directory, arguments[i], &replayed) : replay_file(arguments[i], &replayed);
        if (directory)
            closedir(directory);
    }
    printf("%u inputs\n", replayed);
    return wrong || replayed == 0;
}
