// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): the only source of
// random numbers that a result depends on. A value is a pure function of (key, counter), so that masks,
// weights and the sample order do not depend on threads, ranks, recomputation or resume.
//
// A key is stream_key(seed, stream); streams are small integers or hashes of names:
//   dropout      stream = kDropoutStream + site, counter = (sample low, sample high, block, site-local 0)
//   draws        stream = kUniformStream + site, counter = (sample low, sample high, block low, block high)
//   weights      stream = hash of the parameter's name, counter = (block low, block high, 0, 0)
//   sample order stream = kOrderStream
//   images       stream = kImageStream, counter = (place low, place high, 0, 0)
//   factors      stream = hash of the matrix's name, counter = (block low, block high, updates low, updates high)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace dstrain {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr uint64_t kDropoutStream = 0x64726f70'00000000ull;
inline constexpr uint64_t kUniformStream = 0x756e6966'00000000ull;
inline constexpr uint64_t kOrderStream = 0x6f726465'00000000ull;
inline constexpr uint64_t kImageStream = 0x696d6167'00000000ull;
inline constexpr uint64_t kSamplingStream = 0x73616d70'00000000ull;

// Returns four random words.
constexpr PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// SplitMix64's finalizer: spreads nearby seeds and streams over the key space.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Returns the key of a stream.
constexpr PhiloxKey stream_key(uint64_t seed, uint64_t stream) {
  const uint64_t k = mix64(mix64(seed) ^ stream);
  return {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)};
}

// Returns the FNV-1a hash of `name`.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// The rule of dropout: element e of sample s at a site is kept if its 16 random bits are >= threshold. The
// bits of elements 8b .. 8b+7 are the eight halves (low half first) of the block
// philox(stream_key(seed, kDropoutStream + site), {s low, s high, b low, b high}).
// p is rounded to a multiple of 2^-16 below 1, and kept elements are scaled by 1 / (1 - rounded p), so that
// the expectation is exact.
struct DropoutRule {
  uint32_t threshold = 0;  // 0: nothing is dropped; the configuration refuses p = 1
  float scale = 1.0f;

  explicit DropoutRule(float p)
      : threshold(std::min(static_cast<uint32_t>(static_cast<double>(p) * 65536.0 + 0.5), 65535u)),
        scale(static_cast<float>(65536.0 / (65536.0 - threshold))) {}
};

// Returns the 16 random bits of an element; `key` is that of the site.
constexpr uint32_t dropout_bits(PhiloxKey key, uint64_t sample, uint64_t element) {
  const uint64_t block = element / 8;
  const PhiloxBlock r =
      philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                   static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)});
  const uint32_t word = r[(element % 8) / 2];
  return element % 2 ? word >> 16 : word & 0xffffu;
}

// Returns what the op `uniform` draws for element `element` of a sample: uniform on [0, 1), a multiple of 2^-24. `key` is that of
// the site.
constexpr float uniform_value(PhiloxKey key, uint64_t sample, uint64_t element) {
  const uint64_t block = element / 4;
  const PhiloxBlock words =
      philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                   static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32)});
  return static_cast<float>(words[element % 4] >> 8) * 0x1p-24f;
}

// Returns element `element` of a factor after `updates` updates: uniform on [-1, 1), a multiple of 2^-23.
constexpr float random_factor_value(PhiloxKey key, uint64_t updates, uint64_t element) {
  const uint64_t block = element / 4;
  const PhiloxBlock words =
      philox(key, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(updates), static_cast<uint32_t>(updates >> 32)});
  return static_cast<float>(words[element % 4] >> 8) * 0x1p-23f - 1.0f;
}

}  // namespace dstrain
