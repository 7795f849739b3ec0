// A preload library for PyTorch on virtual machines that offer AMX but hide its tile palettes (CPUID leaves
// 0x1D and 0x1E read as zero). PyTorch's oneDNN then configures palette 0 and ends with SIGILL at its first
// bf16 product. This library makes CPUID fault (arch_prctl) and answers those two leaves with the only palette
// there is. It costs time only when a program executes CPUID.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { kSetCpuid = 0x1012 };  // ARCH_SET_CPUID

static void answer(int number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* r = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* code = (const uint8_t*)r[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {  // not CPUID: a real crash
    signal(number, SIG_DFL);
    return;
  }
  const uint32_t leaf = (uint32_t)r[REG_RAX], part = (uint32_t)r[REG_RCX];
  uint32_t a = leaf, b = 0, c = part, d = 0;
  syscall(SYS_arch_prctl, kSetCpuid, 1);
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  syscall(SYS_arch_prctl, kSetCpuid, 0);
  if (leaf == 0 && a < 0x1e) a = 0x1e;
  if (leaf == 0x1d && part == 0) a = 1;  // the highest palette
  if (leaf == 0x1d && part == 1) {       // 8 tiles of 1024 bytes: 16 rows of 64
    a = 1024u << 16 | 8192;
    b = 8u << 16 | 64;
    c = 16;
  }
  if (leaf == 0x1e && part == 0) b = 64u << 8 | 16;
  r[REG_RAX] = a;
  r[REG_RBX] = b;
  r[REG_RCX] = c;
  r[REG_RDX] = d;
  r[REG_RIP] += 2;
}

__attribute__((constructor)) static void install(void) {
  struct sigaction action = {0};
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, 0);
  syscall(SYS_arch_prctl, kSetCpuid, 0);
}
