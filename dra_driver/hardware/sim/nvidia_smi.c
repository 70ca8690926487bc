/* nvidia-smi of a simulated GPU machine. Static, so that it runs in any container, and it knows nothing by itself:
 * like the real tool it asks libnvidia-ml, whose simulated file ends in a table of the machine's GPUs, and it shows a
 * GPU only if the GPU's device node is there. Build: gcc -static -Os -Wall -Wextra -Werror nvidia_smi.c
 *
 * Under another name (nvidia-persistenced, nvidia-cuda-mps-control, ...) it only says what it stands for.
 * NVIDIA_SIM_ROOT is put before every absolute path: for tests.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ROWS 512
#define FIELDS 8
#define MARK "\nNVIDIA-SIM-TABLE 1\n"

enum { EXIT_INVALID = 2, EXIT_NO_DEVICE = 6, EXIT_NO_DRIVER = 9, EXIT_NO_LIBRARY = 12, EXIT_LOST = 15 };
/* gpu <minor> <pci> <uuid> <memory MiB> <ok|lost> <name>; mig <minor> <index> <uuid> <gi cap> <ci cap> <profile> */
enum { KIND, MINOR, PCI, UUID, MEMORY, CONDITION, NAME };
enum { MIG_INDEX = 2, MIG_UUID, MIG_GI, MIG_CI, MIG_PROFILE };

static char *rows[MAX_ROWS][FIELDS];
static int row_count;
static const char *driver = "", *cuda = "", *loaded = "0", *state_directory = "";

static const char *DIRECTORIES[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/lib", NULL};

static int exists(const char *directory, const char *name, const char *number)
{
    char path[4096];
    const char *root = getenv("NVIDIA_SIM_ROOT");
    snprintf(path, sizeof path, "%s%s/%s%s", root ? root : "", directory, name, number);
    return access(path, F_OK) == 0;
}

static FILE *library_in(const char *directory)
{
    char path[4096], found[4096] = "";
    const char *root = getenv("NVIDIA_SIM_ROOT");
    snprintf(path, sizeof path, "%s%s/libnvidia-ml.so.1", root ? root : "", directory);
    FILE *file = fopen(path, "rb");
    if (file) return file;
    snprintf(path, sizeof path, "%s%s", root ? root : "", directory);
    DIR *open_directory = opendir(path);
    if (!open_directory) return NULL;
    for (struct dirent *entry; (entry = readdir(open_directory));)
        if (strncmp(entry->d_name, "libnvidia-ml.so.", 16) == 0)
            snprintf(found, sizeof found, "%.2047s/%.2000s", path, entry->d_name);
    closedir(open_directory);
    return found[0] ? fopen(found, "rb") : NULL;
}

static FILE *library(void)
{
    FILE *file = NULL;
    const char *preload = getenv("LD_PRELOAD"), *paths = getenv("LD_LIBRARY_PATH");
    if (preload && strstr(preload, "libnvidia-ml.so") && (file = fopen(preload, "rb"))) return file;
    char *copy = strdup(paths ? paths : "");
    for (char *part = strtok(copy, ":"); part && !file; part = strtok(NULL, ":")) file = library_in(part);
    for (int i = 0; DIRECTORIES[i] && !file; i++) file = library_in(DIRECTORIES[i]);
    free(copy);
    return file;
}

/* Cuts the table at the end of the library file into rows. */
static int read_table(FILE *file)
{
    static char data[1 << 20];
    size_t length = fread(data, 1, sizeof data - 1, file);
    char *start = memmem(data, length, MARK, strlen(MARK));
    if (!start) return 0;
    for (char *line = strtok(start + strlen(MARK), "\n"); line && strcmp(line, "end") != 0; line = strtok(NULL, "\n")) {
        char *fields[FIELDS] = {0}, *rest = line;
        for (int i = 0; i < FIELDS && rest; i++) fields[i] = strsep(&rest, "\t");
        if (strcmp(line, "driver") == 0)
            driver = fields[1], cuda = fields[2], loaded = fields[3], state_directory = fields[4];
        else if (row_count < MAX_ROWS)
            memcpy(rows[row_count++], fields, sizeof fields);
    }
    return 1;
}

static int is_visible_gpu(char **row) { return strcmp(row[KIND], "gpu") == 0 && exists("/dev", "nvidia", row[MINOR]); }

/* Who may configure MIG sees all instances; a container sees those whose two capabilities it was given. */
static int is_visible_mig(char **row, const char *minor)
{
    const char *caps = "/dev/nvidia-caps", *cap = "nvidia-cap";
    if (strcmp(row[KIND], "mig") != 0 || strcmp(row[MINOR], minor) != 0) return 0;
    return exists(caps, cap, "1") || (exists(caps, cap, row[MIG_GI]) && exists(caps, cap, row[MIG_CI]));
}

static int list(void)
{
    int number = 0, status = 0;
    for (int i = 0; i < row_count; i++) {
        char **gpu = rows[i];
        if (!is_visible_gpu(gpu)) continue;
        if (strcmp(gpu[CONDITION], "ok") != 0) {
            printf("Unable to determine the device handle for GPU%s: GPU is lost.  Reboot the system to recover this GPU\n", gpu[PCI]);
            status = EXIT_LOST;
            number++;
            continue;
        }
        printf("GPU %d: %s (UUID: %s)\n", number++, gpu[NAME], gpu[UUID]);
        for (int j = 0, device = 0; j < row_count; j++)
            if (is_visible_mig(rows[j], gpu[MINOR]))
                printf("  MIG %-11s Device %2d: (UUID: %s)\n", rows[j][MIG_PROFILE], device++, rows[j][MIG_UUID]);
    }
    return status;
}

static int table(void)
{
    const char *line = "+-----------------------------------------------------------------------------------------+";
    int number = 0;
    printf("%s\n| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n%s\n", line, driver, driver, cuda, line);
    printf("| GPU  Name                                        Bus-Id            Memory-Total         |\n%s\n", line);
    for (int i = 0; i < row_count; i++)
        if (is_visible_gpu(rows[i]))
            printf("| %3d  %-43s %-17s %9s MiB        |\n", number++, rows[i][NAME], rows[i][PCI], rows[i][MEMORY]);
    printf("%s\n", line);
    return 0;
}

/* --query-gpu=index,name,uuid,pci.bus_id,memory.total,driver_version --format=csv[,noheader] */
static int query(const char *wanted, int header)
{
    char names[512];
    int number = 0;
    for (int i = -1; i < row_count; i++) {
        if (i < 0 ? !header : !is_visible_gpu(rows[i])) continue;
        snprintf(names, sizeof names, "%s", wanted);
        const char *comma = "";
        for (char *name = strtok(names, ","); name; name = strtok(NULL, ","), comma = ", ") {
            printf("%s", comma);
            if (i < 0) printf("%s", name);
            else if (strcmp(name, "index") == 0) printf("%d", number);
            else if (strcmp(name, "name") == 0) printf("%s", rows[i][NAME]);
            else if (strcmp(name, "uuid") == 0 || strcmp(name, "gpu_uuid") == 0) printf("%s", rows[i][UUID]);
            else if (strcmp(name, "pci.bus_id") == 0) printf("%s", rows[i][PCI]);
            else if (strcmp(name, "memory.total") == 0) printf("%s MiB", rows[i][MEMORY]);
            else if (strcmp(name, "driver_version") == 0) printf("%s", driver);
            else {
                printf("Field \"%s\" is not a valid field to query.\n", name);
                return EXIT_INVALID;
            }
        }
        printf("\n");
        number += i >= 0;
    }
    return 0;
}

/* compute-policy -i UUID --set-timeslice 0..3: the file that it leaves is what the simulated machine reads. */
static int compute_policy(int count, char **words)
{
    const char *gpu = NULL, *value = NULL;
    char path[4096];
    for (int i = 0; i + 1 < count; i++) {
        if (strcmp(words[i], "-i") == 0) gpu = words[i + 1];
        if (strcmp(words[i], "--set-timeslice") == 0) value = words[i + 1];
    }
    if (!gpu || !value || !strchr("0123", value[0]) || strlen(value) != 1) {
        printf("Invalid combination of input arguments. Please run 'nvidia-smi compute-policy -h' for help.\n");
        return EXIT_INVALID;
    }
    for (int i = 0; i < row_count; i++) {
        if (!is_visible_gpu(rows[i]) || (strcmp(rows[i][UUID], gpu) != 0 && strcmp(rows[i][PCI], gpu) != 0)) continue;
        snprintf(path, sizeof path, "%s/timeslice.%s", state_directory, rows[i][UUID]);
        FILE *file = fopen(path, "w");
        if (!file || fprintf(file, "%s\n", value) < 0 || fclose(file) != 0) {
            printf("Failed to set timeslice for GPU %s: Insufficient Permissions\n", rows[i][PCI]);
            return 4;
        }
        printf("Set timeslice for GPU %s to %s\n", rows[i][PCI], value);
        return 0;
    }
    printf("No devices were found\n");
    return EXIT_NO_DEVICE;
}

int main(int count, char **words)
{
    const char *self = strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : words[0], *wanted = NULL;
    int header = 1, wants_list = 0, devices = 0;
    if (strcmp(self, "nvidia-smi") != 0) {
        fprintf(stderr, "%s: stands for the program of that name on a simulated machine and does nothing\n", self);
        return 0;
    }
    FILE *file = library();
    if (!file) {
        printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n"
               "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n");
        return EXIT_NO_LIBRARY;
    }
    if (!read_table(file) || strcmp(loaded, "1") != 0 || !exists("/dev", "nvidiactl", "")) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n");
        return EXIT_NO_DRIVER;
    }
    for (int i = 0; i < row_count; i++) devices += is_visible_gpu(rows[i]);
    if (devices == 0) {
        printf("No devices were found\n");
        return EXIT_NO_DEVICE;
    }
    if (count > 1 && strcmp(words[1], "compute-policy") == 0) return compute_policy(count - 2, words + 2);
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "-L") == 0 || strcmp(words[i], "--list-gpus") == 0) wants_list = 1;
        else if (strncmp(words[i], "--query-gpu=", 12) == 0) wanted = words[i] + 12;
        else if (strncmp(words[i], "--format=csv", 12) == 0) header = strstr(words[i], "noheader") == NULL;
        else {
            printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
            return EXIT_INVALID;
        }
    }
    return wants_list ? list() : wanted ? query(wanted, header) : table();
}
