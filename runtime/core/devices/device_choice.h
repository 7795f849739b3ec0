// DeviceChoice: the device that a run asks for. What code wants to know of it, functions here tell.
#pragma once

#include <cstdint>
#include <string_view>

namespace dstrain {

enum class DeviceKind : uint8_t;

// `automatic`: a GPU where the machine has one, else the CPU.
enum class DeviceChoice : uint8_t { automatic, cpu, cuda, emulated };

// Returns the name that --device takes: auto, cpu, cuda or emulated.
std::string_view name_of(DeviceChoice device);
// Returns the device of a name. Throws UserError if there is none of that name.
DeviceChoice device_named(std::string_view name);

// Returns the kind of the device. One that is not chosen yet counts as a CPU, as a plan of it is made.
DeviceKind kind_of(DeviceChoice device);
// Returns whether it is a GPU: it has memory of its own, and ranks need one each.
bool is_gpu(DeviceChoice device);
// Returns whether a GPU that the machine has would be used.
bool takes_gpu(DeviceChoice device);

}  // namespace dstrain
