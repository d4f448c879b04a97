/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses and sockets of the side channel.  Which address of this node others are given:
 * that of BATON_INTERFACE, which names an interface or is an address; else the first of the
 * best kind, of an interface that is up:
 *   1. IPv4, 2. IPv6 (not of one link only), of an interface other than these:
 *   3. bridges and ends of containers and virtual machines (docker0, virbr0, veth..., br-...,
 *      cni0, podman0), where other nodes do not come;
 *   4. loopback, which serves the processes of this node.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "tcp.h"

/* A node that is silent is given up after about 40 s. */
#define IDLE_S 10
#define PROBE_S 5
#define PROBES 6
#define SILENT_MS 40000

#define BACKLOG 4096 /* the kernel may allow less */

void
batoni_tcp_address_from(const struct sockaddr *from,
                        struct batoni_side_address *address)
{
	*address = (struct batoni_side_address){.family = 0};
	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)from;

		address->family = 4;
		address->port = ntohs(v4->sin_port);
		memcpy(address->bytes, &v4->sin_addr, 4);
	} else if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)from;

		address->family = 6;
		address->port = ntohs(v6->sin6_port);
		address->scope = v6->sin6_scope_id;
		memcpy(address->bytes, &v6->sin6_addr, 16);
	}
}

static socklen_t
to_socket(const struct batoni_side_address *address,
          struct sockaddr_storage *storage)
{
	memset(storage, 0, sizeof(*storage));
	if (address->family == 4) {
		struct sockaddr_in *v4 = (void *)storage;

		v4->sin_family = AF_INET;
		v4->sin_port = htons(address->port);
		memcpy(&v4->sin_addr, address->bytes, 4);
		return sizeof(*v4);
	}
	struct sockaddr_in6 *v6 = (void *)storage;

	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(address->port);
	v6->sin6_scope_id = address->scope;
	memcpy(&v6->sin6_addr, address->bytes, 16);
	return sizeof(*v6);
}

void
batoni_tcp_address_text(const struct batoni_side_address *address, char *text,
                        size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->bytes,
	          host, sizeof(host));
	snprintf(text, size, address->family == 4 ? "%s:%u" : "[%s]:%u", host,
	         address->port);
}

/* ---- which address ---- */

static bool
is_of_containers(const char *name)
{
	static const char *const begin[] = {"docker", "virbr", "veth", "br-",
	                                    "cni",    "podman"};

	for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++) {
		if (strncmp(name, begin[i], strlen(begin[i])) == 0)
			return true;
	}
	return false;
}

/* The lower the better; 0: none that others could reach. */
static int
kind_of(const struct ifaddrs *entry)
{
	bool v6 = entry->ifa_addr->sa_family == AF_INET6;
	const struct sockaddr_in6 *address = (const void *)entry->ifa_addr;

	if (v6 && IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
		return 0;
	if (entry->ifa_flags & IFF_LOOPBACK)
		return 5 + v6;
	return (is_of_containers(entry->ifa_name) ? 3 : 1) + v6;
}

static int
find_best(const struct ifaddrs *list, const char *name_or_null,
          struct batoni_side_address *address_p)
{
	int best = 0;

	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		int kind;

		if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) ||
		    (entry->ifa_addr->sa_family != AF_INET &&
		     entry->ifa_addr->sa_family != AF_INET6) ||
		    (name_or_null && strcmp(name_or_null, entry->ifa_name) != 0))
			continue;
		kind = kind_of(entry);
		if (kind == 0 || (best && kind >= best))
			continue;
		best = kind;
		batoni_tcp_address_from(entry->ifa_addr, address_p);
	}
	return best ? 0 : name_or_null ? ENODEV : EADDRNOTAVAIL;
}

static bool
parse(const char *text, struct batoni_side_address *address_p)
{
	*address_p = (struct batoni_side_address){.family = 4};
	if (inet_pton(AF_INET, text, address_p->bytes) == 1)
		return true;
	address_p->family = 6;
	return inet_pton(AF_INET6, text, address_p->bytes) == 1;
}

int
batoni_tcp_address_choose(struct batoni_side_address *address_p)
{
	const char *name = batoni_config()->interface;
	struct ifaddrs *list;
	int error;

	if (*name && parse(name, address_p))
		return 0;
	if (getifaddrs(&list) != 0)
		return errno;
	error = find_best(list, *name ? name : NULL, address_p);
	freeifaddrs(list);
	address_p->port = 0;
	return error;
}

/* "lo (127.0.0.1), eth0 (10.0.0.2)": each address once, as long as there is room. */
static void
list_interfaces(const struct ifaddrs *list, char *text, size_t size)
{
	text[0] = '\0';
	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		char host[INET6_ADDRSTRLEN] = "?";
		struct batoni_side_address address;
		size_t used = strlen(text);

		if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
			continue;
		batoni_tcp_address_from(entry->ifa_addr, &address);
		if (address.family == 0 || kind_of(entry) == 0)
			continue;
		inet_ntop(address.family == 4 ? AF_INET : AF_INET6,
		          address.bytes, host, sizeof(host));
		snprintf(text + used, size - used, "%s%s (%s)", used ? ", " : "",
		         entry->ifa_name, host);
	}
}

enum baton_status
batoni_tcp_check_interface(const char *call)
{
	const char *name = batoni_config()->interface;
	struct batoni_side_address address;
	struct ifaddrs *list;
	char text[300] = "";
	int error = 0, fd = -1;

	if (!*name)
		return BATON_OK;
	error = batoni_tcp_address_choose(&address);
	address.port = 0;
	if (error == 0)
		error = batoni_tcp_listen_on(&address, &fd);
	if (fd >= 0)
		close(fd);
	if (error != ENODEV && error != EADDRNOTAVAIL)
		return BATON_OK;
	if (getifaddrs(&list) == 0) {
		list_interfaces(list, text, sizeof(text));
		freeifaddrs(list);
	}
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: BATON_INTERFACE is \"%.64s\" in the environment, "
	                     "which is no interface that is up, nor an address of "
	                     "this node; there are: %s",
	                     call, name, *text ? text : "none");
}

int
batoni_tcp_resolve(const char *host, uint16_t port,
                   struct batoni_side_address addresses[], int most,
                   const char **why_p)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list;
	int error = getaddrinfo(host, NULL, &hints, &list);
	int n = 0;

	if (error) {
		*why_p = gai_strerror(error);
		return 0;
	}
	for (struct addrinfo *entry = list; entry && n < most;
	     entry = entry->ai_next) {
		if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6)
			continue;
		batoni_tcp_address_from(entry->ai_addr, &addresses[n]);
		addresses[n++].port = port;
	}
	freeaddrinfo(list);
	*why_p = "it has no IP address";
	return n;
}

/* ---- sockets ---- */

static int
close_failed(int fd, int error)
{
	close(fd);
	return error;
}

static int
open_socket(int family, int *fd_p)
{
	*fd_p = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *fd_p < 0 ? errno : 0;
}

int
batoni_tcp_listen_on(struct batoni_side_address *address, int *fd_p)
{
	struct batoni_side_address bound = *address;
	struct sockaddr_storage storage;
	socklen_t length;
	int error, fd, on = 1, off = 0;

	if (bound.family == 0)
		bound.family = 6;
	length = to_socket(&bound, &storage);
	error = open_socket(storage.ss_family, &fd);
	/* This node has no IPv6. */
	if (error && address->family == 0) {
		bound.family = 4;
		length = to_socket(&bound, &storage);
		error = open_socket(storage.ss_family, &fd);
	}
	if (error)
		return error;
	/* A port may be used again while connections of the last creation linger. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bound.family == 6 && address->family == 0)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&storage, length) != 0 ||
	    listen(fd, BACKLOG) != 0 ||
	    getsockname(fd, (struct sockaddr *)&storage, &length) != 0)
		return close_failed(fd, errno);
	batoni_tcp_address_from((struct sockaddr *)&storage, &bound);
	address->port = bound.port;
	*fd_p = fd;
	return 0;
}

int
batoni_tcp_connect_to(const struct batoni_side_address *address, int *fd_p)
{
	struct sockaddr_storage storage;
	socklen_t length = to_socket(address, &storage);
	int error, fd;

	error = open_socket(storage.ss_family, &fd);
	if (error)
		return error;
	if (connect(fd, (struct sockaddr *)&storage, length) != 0 &&
	    errno != EINPROGRESS)
		return close_failed(fd, errno);
	*fd_p = fd;
	return 0;
}

void
batoni_tcp_tune(int fd)
{
	const int on = 1, idle = IDLE_S, probe = PROBE_S, probes = PROBES;
	const unsigned silent = SILENT_MS;

	/* Not of a socket pair: they fail, and mean nothing. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe, sizeof(probe));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent, sizeof(silent));
}

bool
batoni_tcp_random(void *bytes, size_t n)
{
	/* Up to 256 bytes are given whole, once the kernel's source is ready; before that a
	 * signal may end the wait. */
	for (;;) {
		ssize_t got = getrandom(bytes, n, 0);

		if (got >= 0 || errno != EINTR)
			return got == (ssize_t)n;
	}
}
