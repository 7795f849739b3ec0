// What the cores give at the moment of asking: rates of products on registers alone, to hold a
// kernel's time against on machines whose speed changes from second to second. Each takes a few
// milliseconds.
#pragma once

namespace dstrain::bench {

// FLOP/s of fp32 multiply-adds (AVX-512, or AVX2 where that is the limit) in all `threads`.
double multiply_add_rate(int threads);

// FLOP/s of bf16 tile products in all `threads`; 0 without AMX.
double tile_rate(int threads);

// CPU time of the calling thread, and of the whole process, in seconds.
double thread_seconds();
double process_seconds();

}  // namespace dstrain::bench
