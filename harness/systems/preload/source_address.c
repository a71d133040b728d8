/* The address from which one process connects.
 *
 *     LD_PRELOAD=preload.so LASTSTAND_SOURCE=198.18.9.3 PROGRAM
 *
 * Several nodes on one host have an address each, and a fault cuts the link between two addresses. A program that
 * cannot be told from which address to connect would use the first one of the host, and no cut would hit it. So a TCP
 * socket without an address of its own gets the one of the variable before it connects. Without the variable, or if
 * the address is not one of this host, nothing changes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

static int (*next_connect)(int, const struct sockaddr *, socklen_t);
static struct in_addr source;
static int has_source;

static int is_tcp(int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
}

static void bind_source(int fd) {
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    const int yes = 1;
    if (!is_tcp(fd) || getsockname(fd, (struct sockaddr *)&own, &size)) return;
    if (own.ss_family == AF_INET) {
        struct sockaddr_in *at = (struct sockaddr_in *)&own;
        if (at->sin_port || at->sin_addr.s_addr != htonl(INADDR_ANY)) return;
        at->sin_addr = source;
    } else if (own.ss_family == AF_INET6) {
        struct sockaddr_in6 *at = (struct sockaddr_in6 *)&own;
        if (at->sin6_port || !IN6_IS_ADDR_UNSPECIFIED(&at->sin6_addr)) return;
        at->sin6_addr.s6_addr[10] = at->sin6_addr.s6_addr[11] = 0xff;
        memcpy(&at->sin6_addr.s6_addr[12], &source, sizeof source);
    } else {
        return;
    }
    /* The port is chosen when the other end is known, or many connections would use up the ports. */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    bind(fd, (struct sockaddr *)&own, size);
}

static int leads_to_ipv4(const struct sockaddr *to, socklen_t size) {
    if (size >= sizeof(struct sockaddr_in) && to->sa_family == AF_INET) return 1;
    return size >= sizeof(struct sockaddr_in6) && to->sa_family == AF_INET6 &&
           IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)to)->sin6_addr);
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    if (has_source && to && leads_to_ipv4(to, size)) bind_source(fd);
    return next_connect ? next_connect(fd, to, size) : (int)syscall(SYS_connect, fd, to, size);
}

__attribute__((constructor)) static void begin(void) {
    const char *address = getenv("LASTSTAND_SOURCE");
    next_connect = dlsym(RTLD_NEXT, "connect");
    has_source = address && inet_pton(AF_INET, address, &source) == 1;
}
