// Reads any bytes as an image file, which gives an error or an image of the size that its header states.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/data/images/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dstrain;
  const int file = ::memfd_create("image", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  try {
    const InputFile input("/proc/self/fd/" + std::to_string(file), "the image");
    const ImageHeader header = read_image_header(input);
    if (header.width * header.height <= 1 << 20 && can_decode(header.kind)) {
      std::vector<unsigned char> pixels(static_cast<size_t>(header.width * header.height * 3));
      decode_image(header, {data, size}, 3, pixels.data());
    }
  } catch (const UserError&) {
    // refused, as it should be
  }
  ::close(file);
  return 0;
}
