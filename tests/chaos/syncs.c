/* Preloaded into loomid: notes how much of a write-ahead log each fsync has made safe.

   A line in the file SYNC_NOTES for each sync of a file "…-wal", after it has succeeded:
   its two salts (hex) and the offset behind the last frame that carries them. SQLite writes
   the frames of one generation one after the other and changes the salts when it begins at
   the file's start again, so what follows is older. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 32, FRAME = 24 };
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static unsigned char known[8]; /* salts of the generation that was looked through */
static off_t upto;             /* … so far */

static off_t written(int fd, const unsigned char *header) {
  unsigned char frame[FRAME];
  off_t page = header[8] << 24 | header[9] << 16 | header[10] << 8 | header[11];
  if (upto == 0 || memcmp(known, header + 16, 8) != 0) {
    memcpy(known, header + 16, 8);
    upto = HEADER;
  }
  while (pread(fd, frame, FRAME, upto) == FRAME && memcmp(frame + 8, known, 8) == 0)
    upto += FRAME + page;
  return upto;
}

static void note(int fd) {
  char link[32], path[4096], line[64];
  unsigned char header[HEADER];
  const char *notes = getenv("SYNC_NOTES");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path);
  if (notes == NULL || length < 4 || memcmp(path + length - 4, "-wal", 4) != 0) return;
  pthread_mutex_lock(&one_at_a_time);
  if (pread(fd, header, HEADER, 0) == HEADER) {
    off_t end = written(fd, header);
    const unsigned char *s = header + 16;
    int n = snprintf(line, sizeof line, "%02x%02x%02x%02x%02x%02x%02x%02x %lld\n", s[0], s[1],
                     s[2], s[3], s[4], s[5], s[6], s[7], (long long)end);
    int out = open(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (out >= 0) {
      if (write(out, line, n) != n) abort();
      close(out);
    }
  }
  pthread_mutex_unlock(&one_at_a_time);
}

/* The file may grow between the sync and the look at it (by another thread): what is noted
   is then more than is safe, and less is cut off than might be. */
int fsync(int fd) {
  static int (*real)(int);
  if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  int failed = real(fd);
  if (!failed) note(fd);
  return failed;
}

int fdatasync(int fd) {
  static int (*real)(int);
  if (real == NULL) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  int failed = real(fd);
  if (!failed) note(fd);
  return failed;
}
