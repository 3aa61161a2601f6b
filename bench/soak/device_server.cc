// The two ends of a socket in the abstract name space: candidates ask, the process with the context answers.
#include "soak/device_server.h"

#include "autotune/gpu/gpu_memory.h"
#include "autotune/trial/argument_facts.h"
#include "device/recipe_launcher.h"
#include "support/error.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace nestor::soak {
namespace {

using nlohmann::json;

constexpr unsigned kAnswer_s = 20;

/// The name lives as long as any process has the socket open.
std::string fresh_address() {
  static int count = 0;
  return fmt::format("nestor-soak-{}-{}", getpid(), count++);
}

sockaddr_un socket_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

json bytes_of(const std::byte* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(data);
  return json::binary(std::vector<std::uint8_t>(first, first + size));
}

json bytes_of(const std::string& text) { return bytes_of(reinterpret_cast<const std::byte*>(text.data()), text.size()); }

std::string text_of(const json& bytes) {
  const auto& binary = bytes.get_binary();
  return {binary.begin(), binary.end()};
}

// ---- the process with the context

class Kernel {
 public:
  Kernel(const CudaDevicePtr& device, const CudaStream& stream, const json& message)
      : device_(device),
        stream_(stream),
        recipe_(recipe_from_json(message.at("recipe"))),
        launcher_(CudaModule::load(device, text_of(message.at("code"))), recipe_) {}

  json run(const json& message) {
    std::vector<GuardedDeviceBuffer> buffers;
    std::vector<void*> pointers;
    std::vector<std::int64_t> strides, sizes;
    std::vector<double> scalars;
    for (const ArgumentSpec& argument : recipe_.arguments) {
      const json& given = message.at("arguments").at(argument.name);
      const auto& bytes = given.at("bytes").get_binary();
      buffers.emplace_back(device_, bytes.size(), stream_);
      buffers.back().upload(bytes.data(), stream_);
      pointers.push_back(buffers.back().data());
      const std::vector<std::int64_t> dense = dense_strides(given.at("shape"));
      strides.insert(strides.end(), dense.begin(), dense.end());
    }
    for (const std::string& name : launcher_.size_names()) sizes.push_back(message.at("sizes").at(name));
    for (const ScalarSpec& scalar : recipe_.scalars) scalars.push_back(message.at("scalars").at(scalar.name));
    GuardedDeviceBuffer workspace(device_, static_cast<std::size_t>(launcher_.workspace_bytes(sizes)), stream_);
    workspace.fill(0xffffffff, stream_);
    launcher_.launch({pointers, strides, sizes, scalars, workspace.data()}, stream_);
    stream_.synchronise(launcher_.functions().empty() ? "" : launcher_.functions().front().name());
    return results(message, buffers, workspace);
  }

 private:
  json results(const json& message, std::vector<GuardedDeviceBuffer>& buffers, GuardedDeviceBuffer& workspace) {
    json answer{{"problem", ""}, {"outputs", json::object()}};
    if (!workspace.zones_intact(stream_)) answer["problem"] = "memory around the workspace was written";
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      const ArgumentSpec& argument = recipe_.arguments[k];
      if (!buffers[k].zones_intact(stream_)) answer["problem"] = "memory around " + argument.name + " was written";
      std::vector<std::uint8_t> bytes(buffers[k].bytes());
      if (!bytes.empty()) buffers[k].download(bytes.data(), 0, bytes.size(), stream_);
      stream_.synchronise();
      if (argument.output) {
        answer["outputs"][argument.name] = json::binary(std::move(bytes));
      } else if (const std::vector<std::uint8_t>& given = message.at("arguments").at(argument.name).at("bytes").get_binary();
                 given != bytes) {
        answer["problem"] = argument.name + " was changed, which is an input";
      }
    }
    return answer;
  }

  CudaDevicePtr device_;
  const CudaStream& stream_;
  LaunchRecipe recipe_;
  RecipeLauncher launcher_;
};

/// Answers one candidate until it hangs up. False when the context is lost.
bool serve_candidate(int socket, const CudaDevicePtr& device, const CudaStream& stream) {
  std::optional<Kernel> kernel;
  while (const auto message = receive_message(socket)) {
    alarm(kAnswer_s);  // a kernel that hangs takes this process with it
    json answer;
    bool lost = false;
    try {
      if (message->contains("code")) {
        kernel.emplace(device, stream, *message);
        answer = {{"problem", ""}};
      } else {
        answer = kernel.value().run(*message);
      }
    } catch (const CudaError& error) {
      lost = error.context_lost();
      answer = {{"fault", error.what()}};
    } catch (const UserError& error) {
      answer = {{"refused", error.what()}};
    } catch (const std::exception& error) {
      answer = {{"fault", error.what()}};
    }
    alarm(0);
    if (!send_message(socket, answer) || lost) return !lost;
  }
  return true;
}

void serve_device(int listening, int ordinal) {
  const CudaDevicePtr device = CudaDevice::open(ordinal);
  const ContextScope scope(*device);
  const CudaStream stream(device);
  while (true) {
    const int socket = accept(listening, nullptr, nullptr);
    if (socket < 0 && errno == EINTR) continue;
    if (socket < 0) return;
    const bool usable = serve_candidate(socket, device, stream);
    close(socket);
    if (!usable) _exit(1);
  }
}

/// Starts the process of the device again and again.
void supervise(int listening, int ordinal) {
  while (true) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        serve_device(listening, ordinal);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        sleep(1);
      }
      _exit(1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  }
}

// ---- the candidate's end

class DeviceCandidate : public LoadedCandidate {
 public:
  DeviceCandidate(const Generated& generated, const std::string& address) : recipe_(generated.kernel.recipe) {
    socklen_t length = 0;
    const sockaddr_un name = socket_address(address, length);
    socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || connect(socket_, reinterpret_cast<const sockaddr*>(&name), length) != 0)
      throw DeviceError(fmt::format("the device's server does not answer: {}", std::strerror(errno)));
    ask({{"code", bytes_of(generated.binary.empty() ? generated.kernel.code : generated.binary)},
         {"recipe", recipe_to_json(recipe_)}});
  }
  ~DeviceCandidate() override { close(socket_); }

  std::string run(const Sizes& sizes, const ProblemData& data, HostTensors& results) override {
    json arguments = json::object();
    for (const ArgumentSpec& argument : recipe_.arguments) {
      const HostTensor& tensor = data.tensors.at(argument.name);
      arguments[argument.name] = {{"shape", tensor.shape}, {"bytes", bytes_of(tensor.bytes.data(), tensor.bytes.size())}};
    }
    const json answer = ask({{"sizes", sizes}, {"scalars", data.scalars}, {"arguments", std::move(arguments)}});
    for (const auto& [name, bytes] : answer.at("outputs").items()) {
      HostTensor result = data.tensors.at(name);
      const auto& binary = bytes.get_binary();
      if (binary.size() != result.bytes.size()) internal_error("the device's server returns {} bytes of {}", binary.size(), name);
      std::memcpy(result.bytes.data(), binary.data(), binary.size());
      results.insert_or_assign(name, std::move(result));
    }
    return answer.at("problem");
  }

 private:
  json ask(const json& message) const {
    const auto answer = send_message(socket_, message) ? receive_message(socket_) : std::nullopt;
    if (!answer) throw DeviceError("the device's process ended: a kernel that faults, or does not end");
    if (answer->contains("fault")) throw DeviceError(answer->at("fault"));
    if (answer->contains("refused")) throw UserError(answer->at("refused"));
    return *answer;
  }

  LaunchRecipe recipe_;
  int socket_ = -1;
};

}  // namespace

DeviceServers::DeviceServers(int ordinal, int count) : address_(fresh_address()) {
  socklen_t length = 0;
  const sockaddr_un name = socket_address(address_, length);
  listening_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  constexpr int kWaiting = 256;
  if (listening_ < 0 || bind(listening_, reinterpret_cast<const sockaddr*>(&name), length) != 0 ||
      listen(listening_, kWaiting) != 0)
    internal_error("a socket for the device's server: {}", std::strerror(errno));
  for (int k = 0; k < count; ++k) {
    supervisors_.emplace_back();
    supervisors_.back().start(0, [&](int) { supervise(listening_, ordinal); });
  }
}

DeviceServers::~DeviceServers() {
  for (WorkerProcess& supervisor : supervisors_) supervisor.end(true);
  close(listening_);
}

std::unique_ptr<LoadedCandidate> load_on_device(const Generated& generated, const std::string& address) {
  return std::make_unique<DeviceCandidate>(generated, address);
}

}  // namespace nestor::soak
