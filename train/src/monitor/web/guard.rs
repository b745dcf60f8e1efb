//! The guard of the page: requests are checked before anything looks at them.
//!
//! - **Host.** A page of another site can let a browser look its own name up as this machine (DNS rebinding) and then
//!   read answers as its own; the name stays in the header `Host`. Loopback addresses and `localhost` are served, other
//!   addresses only if the page is not bound to the loopback interface, since an address is never looked up, and names
//!   only if the settings list them.
//! - **Token.** In the query (`?token=`), as in the address that is printed, or in the header `Authorization`. A
//!   request that changes something needs the header, which no form and no image of another site can send.

use std::net::IpAddr;

use axum::extract::Query;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};
use serde::Deserialize;

use super::secret;

/// The conditions that requests have to meet.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) token: String,
    /// Whether the page is bound to the loopback interface.
    pub(super) is_local: bool,
    /// Further names of this machine, in lower case.
    pub(super) hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The name of the host is not this machine's, or the request comes from a page of another one.
    Host,
    /// There is no token.
    NoToken,
    /// The token is another one.
    WrongToken,
}

#[derive(Deserialize)]
struct Asked {
    token: Option<String>,
}

impl Guard {
    pub(super) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // A request to a proxy names the host in its first line, which goes before the header.
        let host = uri.authority().map(|authority| authority.as_str()).or_else(|| header(HOST)).ok_or(Refusal::Host)?;
        if headers.get_all(HOST).iter().count() > 1 || !self.is_served(host) {
            return Err(Refusal::Host);
        }
        let changes = method != Method::GET && method != Method::HEAD;
        let is_of_another_site = |origin: &str| origin.split_once("://").is_none_or(|(_, site)| site != host);
        if changes && header(ORIGIN).is_some_and(is_of_another_site) {
            return Err(Refusal::Host);
        }
        let bearer = header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let in_query = || Query::<Asked>::try_from_uri(uri).ok().and_then(|Query(asked)| asked.token);
        let given = if changes { bearer } else { bearer.or_else(in_query) };
        match given {
            None => Err(Refusal::NoToken),
            Some(given) if secret::are_equal(&given, &self.token) => Ok(()),
            Some(_) => Err(Refusal::WrongToken),
        }
    }

    /// Whether `host`, with or without a port, is a name of this machine.
    fn is_served(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        match name.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.is_local,
            Err(_) => {
                let name = name.to_ascii_lowercase();
                name == "localhost" || self.hosts.contains(&name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn guard(is_local: bool) -> Guard {
        Guard { token: TOKEN.to_owned(), is_local, hosts: vec!["gpu-box".to_owned()] }
    }

    fn check(guard: &Guard, method: Method, uri: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        guard.check(&method, &uri.parse().unwrap(), &map)
    }

    #[test]
    fn hosts_are_names_of_this_machine() {
        let with = |is_local, host: &str| {
            check(&guard(is_local), Method::GET, &format!("/?token={TOKEN}"), &[("host", host)]).is_ok()
        };
        // Behind a tunnel the port is another one.
        for host in ["127.0.0.1", "127.0.0.1:80", "localhost:9", "LOCALHOST", "[::1]:8080", "127.9.9.9", "GPU-box:1"] {
            assert!(with(true, host), "{host}");
        }
        let strangers =
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1", "a@localhost"];
        for host in strangers {
            assert!(!with(true, host) && !with(false, host), "{host}");
        }
        assert!(!with(true, "192.168.0.7:80") && with(false, "192.168.0.7:80") && with(false, "[fe80::1]"));
        let query = format!("/?token={TOKEN}");
        assert_eq!(check(&guard(true), Method::GET, &query, &[]), Err(Refusal::Host));
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(&guard(true), Method::GET, &query, &two), Err(Refusal::Host));
        let absolute = format!("http://evil.example/?token={TOKEN}");
        assert_eq!(check(&guard(true), Method::GET, &absolute, &[("host", "localhost")]), Err(Refusal::Host));
    }

    #[test]
    fn tokens_are_asked_for() {
        let guard = guard(true);
        let host = ("host", "localhost:1");
        let bearer = format!("Bearer {TOKEN}");
        let (right, wrong) = (("authorization", bearer.as_str()), ("authorization", "Bearer 0123456789abcdee"));
        let query = format!("/events?a=b&token={TOKEN}");
        assert_eq!(check(&guard, Method::GET, "/", &[host]), Err(Refusal::NoToken));
        assert_eq!(check(&guard, Method::GET, "/?token=", &[host]), Err(Refusal::WrongToken));
        assert_eq!(check(&guard, Method::GET, "/?token=0", &[host]), Err(Refusal::WrongToken));
        assert_eq!(check(&guard, Method::GET, "/", &[host, wrong]), Err(Refusal::WrongToken));
        assert_eq!(check(&guard, Method::GET, &query, &[host]), Ok(()));
        assert_eq!(check(&guard, Method::GET, "/", &[host, right]), Ok(()));
    }

    #[test]
    fn a_change_takes_no_token_from_the_address() {
        let guard = guard(true);
        let host = ("host", "localhost:1");
        let bearer = format!("Bearer {TOKEN}");
        let right = ("authorization", bearer.as_str());
        let query = format!("/stop?token={TOKEN}");
        assert_eq!(check(&guard, Method::POST, &query, &[host]), Err(Refusal::NoToken));
        assert_eq!(check(&guard, Method::POST, "/stop", &[host, right]), Ok(()));
        assert_eq!(check(&guard, Method::POST, "/stop", &[host, right, ("origin", "http://localhost:1")]), Ok(()));
        for origin in ["http://evil.example", "http://localhost:2", "null"] {
            let outcome = check(&guard, Method::POST, "/stop", &[host, right, ("origin", origin)]);
            assert_eq!(outcome, Err(Refusal::Host), "{origin}");
        }
    }
}
