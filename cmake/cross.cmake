# For another processor, on Debian with its libraries beside those of this one (multiarch). packaging/cross sets the
# environment, as dpkg-architecture prints it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{DEB_HOST_GNU_CPU})
set(CMAKE_C_COMPILER $ENV{DEB_HOST_GNU_TYPE}-gcc)
set(CMAKE_CXX_COMPILER $ENV{DEB_HOST_GNU_TYPE}-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-$ENV{DEB_HOST_GNU_CPU}-static)
