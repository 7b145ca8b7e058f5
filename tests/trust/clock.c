/* A process whose clock of the day is ahead of the machine's by CLOCK_AHEAD_S seconds, or by the number (int64) in the file
   CLOCK_AHEAD_FILE, which may change while it runs. How long it waits stays true: libfaketime changes that, too, and without it
   time.sleep of Python 3.11 fails. LD_PRELOAD names the library that is built of this. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *mapped;

__attribute__((constructor)) static void map(void) {
  const char *path = getenv("CLOCK_AHEAD_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (!path) return;
  void *place = mmap(NULL, sizeof *mapped, PROT_READ, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) abort();
  close(file);
  mapped = place;
}

static time_t ahead(void) {
  const char *seconds = getenv("CLOCK_AHEAD_S");
  if (mapped) return *mapped;
  return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += ahead();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
