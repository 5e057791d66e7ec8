//! The ways in which a scope may name its owner.

use uuid::Uuid;

#[derive(Debug, Clone)]
pub struct User {
    pub id: i64,
    pub name: String,
}

/// Holds its owner.
#[derive(Debug, Clone)]
pub struct Scope {
    pub user: User,
}

/// May name nobody, and has a text for an id.
#[derive(Debug, Clone)]
pub struct AccountScope {
    pub account_id: Option<String>,
}

/// Keeps its fields to itself.
#[derive(Debug, Clone)]
pub struct TeamScope {
    team: Uuid,
}

impl TeamScope {
    #[must_use]
    pub fn new(team: Uuid) -> Self {
        Self { team }
    }

    #[must_use]
    pub fn team_id(&self) -> Uuid {
        self.team
    }
}

/// Lends its owner's id.
#[derive(Debug, Clone)]
pub struct OrgScope {
    name: String,
}

impl OrgScope {
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into() }
    }

    #[must_use]
    pub fn org_id(&self) -> &str {
        &self.name
    }
}

/// Has a smaller integer than the table.
#[derive(Debug, Clone)]
pub struct CompanyScope {
    pub company_id: i32,
}

#[derive(Debug, Clone)]
pub struct Login {
    pub user_id: Uuid,
}

#[derive(Debug, Clone)]
pub struct Organization {
    pub id: i32,
}

/// Calls its owner the current one, who may be absent; then it is an organization's.
#[derive(Debug, Clone)]
pub struct Session {
    pub current_user: Option<Login>,
    pub organization: Option<Organization>,
}

/// Has an id that its table keeps as text; without one it is a club's.
#[derive(Debug, Clone)]
pub struct DeviceScope {
    pub device_id: Option<Uuid>,
    pub club: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Guest {
    id: Uuid,
}

impl Guest {
    #[must_use]
    pub fn id(&self) -> &Uuid {
        &self.id
    }
}

/// Holds an owner that may be absent and is in no table.
#[derive(Debug, Clone)]
pub struct GuestScope {
    pub guest: Option<Guest>,
}

/// Is called like a type of the generated code.
#[derive(Debug, Clone)]
pub struct Owner {
    pub tenant_id: String,
}

/// Lends an owner that may be absent.
#[derive(Debug, Clone)]
pub struct ClientScope {
    client: Option<String>,
}

impl ClientScope {
    #[must_use]
    pub fn client_id(&self) -> Option<&str> {
        self.client.as_deref()
    }
}
