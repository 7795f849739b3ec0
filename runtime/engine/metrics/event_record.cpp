#include "runtime/engine/metrics/event_record.h"

#include <array>
#include <bit>

namespace dstrain {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = crc_table();

template <class Unsigned>
void put_fixed(std::string& to, Unsigned value) {  // little-endian
  for (size_t i = 0; i < sizeof(value); ++i) to += static_cast<char>((value >> (8 * i)) & 0xff);
}

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
  to += static_cast<char>(value);
}

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_key(std::string& to, uint32_t field, WireType type) {
  put_varint(to, (field << 3) | static_cast<uint32_t>(type));
}

void put_bytes(std::string& to, uint32_t field, std::string_view bytes) {
  put_key(to, field, WireType::bytes);
  put_varint(to, bytes.size());
  to += bytes;
}

// Returns the message Event with its time and step, to which one more field is to be added.
std::string event(double time, int64_t step) {
  std::string message;
  put_key(message, 1, WireType::fixed64);
  put_fixed(message, std::bit_cast<uint64_t>(time));
  put_key(message, 2, WireType::varint);
  put_varint(message, static_cast<uint64_t>(step));
  return message;
}

// TFRecord masks checksums, as a checksum over bytes that have checksums in them is weak.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string frame(std::string_view data) {
  std::string record;
  put_fixed(record, uint64_t{data.size()});
  put_fixed(record, masked_crc(record));
  record += data;
  put_fixed(record, masked_crc(data));
  return record;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string version_record(double time) {
  std::string message = event(time, 0);
  put_bytes(message, 3, "brain.Event:2");
  return frame(message);
}

std::string restart_record(double time, int64_t step) {
  std::string log;  // SessionLog{status: START}
  put_key(log, 1, WireType::varint);
  put_varint(log, 1);
  std::string message = event(time, step);
  put_bytes(message, 7, log);
  return frame(message);
}

std::string values_record(double time, int64_t step, const std::vector<TaggedValue>& values) {
  std::string summary;
  for (const TaggedValue& v : values) {
    std::string value;
    put_bytes(value, 1, v.tag);
    put_key(value, 2, WireType::fixed32);
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(v.value)));
    put_bytes(summary, 1, value);
  }
  std::string message = event(time, step);
  put_bytes(message, 5, summary);
  return frame(message);
}

}  // namespace dstrain
