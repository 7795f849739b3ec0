// Measures the current speed of the cores, as the rate of products on registers alone. Kernels are compared with it,
// because a shared machine's speed changes from second to second. A probe takes a few milliseconds.
#pragma once

namespace dstrain::bench {

// Returns the FLOP/s of fp32 multiply-adds (AVX-512, or AVX2 if that is the limit) of all `threads` threads.
double multiply_add_rate(int threads);

// Returns the FLOP/s of the products of bf16 attention of all `threads` threads: tiles (AMX), dot products of pairs
// (AVX512_BF16), or else fp32 multiply-adds.
double bf16_rate(int threads);

// Return the CPU time of the calling thread and of the whole process, and the time of a clock, in seconds.
double thread_seconds();
double process_seconds();
double wall_seconds();

}  // namespace dstrain::bench
