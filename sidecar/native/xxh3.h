// XXH3 with 64 bits, without a seed, as xxHash 0.8 defines it: what `xxhash.xxh3_64_intdigest` returns.
//
// For little-endian machines. tests/unit/distributed_input/graph/test_native_ops.py compares all lengths with the
// Python package.
#ifndef DISTRIBUTED_INPUT_XXH3_H_
#define DISTRIBUTED_INPUT_XXH3_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace xxh3 {

inline constexpr uint8_t kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};
inline constexpr uint64_t kPrime32_1 = 0x9E3779B1u, kPrime32_2 = 0x85EBCA77u, kPrime32_3 = 0xC2B2AE3Du;
inline constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u, kPrime64_2 = 0xC2B2AE3D27D4EB4Fu,
                          kPrime64_3 = 0x165667B19E3779F9u, kPrime64_4 = 0x85EBCA77C2B2AE63u,
                          kPrime64_5 = 0x27D4EB2F165667C5u;
inline constexpr uint64_t kMix1 = 0x165667919E3779F9u, kMix2 = 0x9FB21C651E98DF25u;
inline constexpr size_t kStripe = 64, kStripesPerBlock = (sizeof(kSecret) - kStripe) / 8;
inline constexpr size_t kBlock = kStripe * kStripesPerBlock;

inline uint64_t Read64(const uint8_t* p) {
  uint64_t value;
  memcpy(&value, p, sizeof(value));
  return value;
}

inline uint32_t Read32(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, sizeof(value));
  return value;
}

inline uint64_t RotateLeft(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

inline uint64_t MultiplyAndFold(uint64_t a, uint64_t b) {
  unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t Avalanche(uint64_t h) {
  h = (h ^ (h >> 37)) * kMix1;
  return h ^ (h >> 32);
}

inline uint64_t Avalanche64(uint64_t h) {
  h = (h ^ (h >> 33)) * kPrime64_2;
  h = (h ^ (h >> 29)) * kPrime64_3;
  return h ^ (h >> 32);
}

inline uint64_t Mix16(const uint8_t* p, const uint8_t* secret) {
  return MultiplyAndFold(Read64(p) ^ Read64(secret), Read64(p + 8) ^ Read64(secret + 8));
}

inline uint64_t HashUpTo16(const uint8_t* p, size_t n) {
  const uint8_t* s = kSecret;
  if (n > 8) {
    uint64_t low = Read64(p) ^ Read64(s + 24) ^ Read64(s + 32);
    uint64_t high = Read64(p + n - 8) ^ Read64(s + 40) ^ Read64(s + 48);
    return Avalanche(n + __builtin_bswap64(low) + high + MultiplyAndFold(low, high));
  }
  if (n >= 4) {
    uint64_t both = Read32(p + n - 4) + (static_cast<uint64_t>(Read32(p)) << 32);
    uint64_t h = both ^ Read64(s + 8) ^ Read64(s + 16);
    h = (h ^ RotateLeft(h, 49) ^ RotateLeft(h, 24)) * kMix2;
    h = (h ^ ((h >> 35) + n)) * kMix2;
    return h ^ (h >> 28);
  }
  if (n == 0) return Avalanche64(Read64(s + 56) ^ Read64(s + 64));
  uint32_t bytes = static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[n >> 1]) << 24 |
                   static_cast<uint32_t>(p[n - 1]) | static_cast<uint32_t>(n) << 8;
  return Avalanche64(static_cast<uint64_t>(bytes ^ Read32(s) ^ Read32(s + 4)));
}

inline uint64_t HashUpTo240(const uint8_t* p, size_t n) {
  const uint8_t* s = kSecret;
  uint64_t h = n * kPrime64_1;
  if (n <= 128) {
    for (size_t i = 0; 32 * i < n; i++)
      h += Mix16(p + 16 * i, s + 32 * i) + Mix16(p + n - 16 * (i + 1), s + 32 * i + 16);
    return Avalanche(h);
  }
  for (size_t i = 0; i < 8; i++) h += Mix16(p + 16 * i, s + 16 * i);
  h = Avalanche(h);
  for (size_t i = 8; i < n / 16; i++) h += Mix16(p + 16 * i, s + 16 * (i - 8) + 3);
  return Avalanche(h + Mix16(p + n - 16, s + 136 - 17));
}

inline void Accumulate(uint64_t* sums, const uint8_t* p, const uint8_t* secret) {
#ifdef __SSE2__
  for (size_t i = 0; i < 8; i += 2) {
    auto* sum = reinterpret_cast<__m128i*>(sums + i);
    __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i));
    __m128i key = _mm_xor_si128(data, _mm_loadu_si128(reinterpret_cast<const __m128i*>(secret + 8 * i)));
    __m128i product = _mm_mul_epu32(key, _mm_srli_epi64(key, 32));
    __m128i swapped = _mm_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
    _mm_store_si128(sum, _mm_add_epi64(_mm_load_si128(sum), _mm_add_epi64(product, swapped)));
  }
#else
  for (size_t i = 0; i < 8; i++) {
    uint64_t data = Read64(p + 8 * i), key = data ^ Read64(secret + 8 * i);
    sums[i ^ 1] += data;
    sums[i] += (key & 0xFFFFFFFFu) * (key >> 32);
  }
#endif
}

inline uint64_t HashLong(const uint8_t* p, size_t n) {
  alignas(64) uint64_t sums[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                      kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  const uint8_t* last = kSecret + sizeof(kSecret) - kStripe;
  size_t blocks = (n - 1) / kBlock;
  for (size_t block = 0; block < blocks; block++) {
    for (size_t i = 0; i < kStripesPerBlock; i++)
      Accumulate(sums, p + block * kBlock + i * kStripe, kSecret + 8 * i);
    for (size_t i = 0; i < 8; i++) {
      sums[i] = (sums[i] ^ (sums[i] >> 47) ^ Read64(last + 8 * i)) * kPrime32_1;
    }
  }
  size_t stripes = (n - 1 - blocks * kBlock) / kStripe;
  for (size_t i = 0; i < stripes; i++)
    Accumulate(sums, p + blocks * kBlock + i * kStripe, kSecret + 8 * i);
  Accumulate(sums, p + n - kStripe, last - 7);
  uint64_t h = n * kPrime64_1;
  for (size_t i = 0; i < 4; i++) {
    const uint8_t* secret = kSecret + 11 + 16 * i;
    h += MultiplyAndFold(sums[2 * i] ^ Read64(secret), sums[2 * i + 1] ^ Read64(secret + 8));
  }
  return Avalanche(h);
}

// Return the hash of n bytes.
inline uint64_t Hash(const uint8_t* p, size_t n) {
  if (n <= 16) return HashUpTo16(p, n);
  return n <= 240 ? HashUpTo240(p, n) : HashLong(p, n);
}

}  // namespace xxh3

#endif  // DISTRIBUTED_INPUT_XXH3_H_
